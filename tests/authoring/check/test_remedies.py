"""Remedies: a file with a natural mistake, the message that names it at its place, and the file after the remedy.

The remedy is taken from the message and applied to the marked text. So a message cannot advise anything that leaves an
error, in any of its alternatives.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rules_engine.authoring.check.check import check_files
from rules_engine.language.cel import compile_expression
from rules_engine.model.problems.problem import Problem, Severity
from rules_engine.model.problems.source import SourceText
from rules_engine.rules.rule_set.compiler import ENVIRONMENT
from tests.language.cel.evaluating import both
from tests.support.authoring import write

MAX_ROUNDS = 3
"""Remedies of one file, one after another: where YAML hides an expression, its own mistake is found next."""

RUNGS = "rungs:\n  - resource: nvidia.com/gpu\n  - resource: nvidia.com/mig-3g.40gb\n"


def document(kind: str, spec: str) -> str:
    lines = "".join(f"  {line}\n" for line in spec.rstrip("\n").split("\n"))
    return f"apiVersion: gpurules.io/v1\nkind: {kind}\nmetadata: {{name: example}}\nspec:\n{lines}"


def ladder(spec: str = RUNGS) -> str:
    return document("FallbackLadder", spec)


def injection(spec: str) -> str:
    return document("ResourceInjection", spec)


def validation(expression: str) -> str:
    """Return a Validation whose expression begins in line 7, column 19."""
    return document("Validation", f"match: {{resources: ['*/*']}}\nvalidations:\n  - expression: {expression}")


def rule_test(pod: str, more: str = "expect: {allowed: true}") -> str:
    """Return a RuleTest whose pod is in line 8."""
    return document("RuleTest", f"rules: [rules.yaml]\ncases:\n  - name: one\n    pod: {pod}\n    {more}")


def case(lines: str) -> str:
    """Return a RuleTest of these lines, which begin in line 6."""
    return document("RuleTest", f"rules: [rules.yaml]\n{lines}")


POD = "{spec: {containers: [{name: main}]}}"


def arrival(field: str) -> str:
    """Return a Simulation with a field of its arrival in line 7."""
    return document("Simulation", f"arrivals:\n  - pod: {POD}\n    {field}")


Row = tuple[str, str, str]
"""A mistake, a file with it, and the first error: line, column and message."""

YAML: Sequence[Row] = (
    ("no colon", ladder(RUNGS.replace("rungs:", "rungs")), "5:3: 'rungs' has no colon: write rungs:"),
    (
        "no colon below another field",
        ladder("direction: Down\n" + RUNGS.replace("rungs:", "rungs")),
        "6:3: 'rungs' has no colon: write rungs:",
    ),
    ("no colon at the top", ladder().replace("spec:", "spec"), "4:1: 'spec' has no colon: write spec:"),
    (
        "glob in a block",
        ladder("match:\n  namespaces:\n    - *-prod\n" + RUNGS),
        "7:9: no anchor '-prod' precedes this alias: write \"*-prod\" for the text",
    ),
    (
        "glob in a list",
        ladder("match: {namespaces: [*-prod, a]}\n" + RUNGS),
        "5:24: no anchor '-prod' precedes this alias: write \"*-prod\" for the text",
    ),
    ("asterisk", ladder("match: {namespaces: [*]}\n" + RUNGS), '5:24: text cannot begin with *: write "*"'),
    (
        "asterisk in a block",
        ladder("match:\n  namespaces:\n    - *\n" + RUNGS),
        '7:9: text cannot begin with *: write "*"',
    ),
    (
        "glob of resources",
        validation("object.spec.hostIPC").replace("['*/*']", "[*/*]"),
        '5:23: text cannot begin with *: write "*/*"',
    ),
    ("percent", ladder("description: %50 of them\n" + RUNGS), "5:16: text cannot begin with %: write '%50 of them'"),
    ("at sign", ladder("description: @team\n" + RUNGS), '5:16: text cannot begin with @: write "@team"'),
    (
        "at sign before quotes",
        ladder('description: @say"hi"\n' + RUNGS),
        "5:16: text cannot begin with @: write '@say\"hi\"'",
    ),
    ("backtick", ladder("description: `a` or b\n" + RUNGS), "5:16: text cannot begin with `: write '`a` or b'"),
    (
        "no space after the colon",
        ladder("rungs:\n  - resource:nvidia.com/gpu\n    weight: 7\n  - resource: nvidia.com/mig-3g.40gb"),
        "6:7: no space after the colon: write resource: nvidia.com/gpu",
    ),
    (
        "no space after the last colon",
        ladder(RUNGS + "direction:Down"),
        "8:3: no space after the colon: write direction: Down",
    ),
    (
        "no space after a colon before a list",
        ladder("match: {namespaces:[a]}\n" + RUNGS),
        "5:11: no space after the colon: write namespaces: [",
    ),
    ("equals sign", ladder("direction = Down\n" + RUNGS), "5:3: a key ends with a colon: write direction: Down"),
    ("fullwidth colon", ladder("direction： Down\n" + RUNGS), "5:3: a key ends with a colon: write direction: Down"),
    (
        "tab",
        ladder().replace("  - resource: nvidia.com/gpu", "\t- resource: nvidia.com/gpu"),
        TAB := "6:3: a tab cannot indent in YAML: use spaces",
    ),
    (
        "no dash",
        ladder("rungs:\n  - resource: nvidia.com/gpu\n  resource: nvidia.com/mig-3g.40gb"),
        "7:5: an item begins with a dash: write - resource: nvidia.com/mig-3g.40gb",
    ),
    (
        "line too far left",
        ladder("rungs:\n  - resource: nvidia.com/gpu\n  weight: 7\n  - resource: nvidia.com/mig-3g.40gb"),
        "7:5: wrong indentation: begin in column 7, like the key after the dash in line 6",
    ),
    (
        "line too far right",
        ladder("rungs:\n  - resource: nvidia.com/gpu\n      weight: 7\n  - resource: nvidia.com/mig-3g.40gb"),
        "7:9: wrong indentation: begin in column 7, like the key after the dash in line 6",
    ),
    (
        "item too far right",
        ladder("rungs:\n  - resource: nvidia.com/gpu\n   - resource: nvidia.com/mig-3g.40gb"),
        "7:6: wrong indentation: begin in column 5, like line 6",
    ),
    (
        "indented top level",
        ladder().replace("metadata: {name: example}\nspec:", "metadata:\n  name: example\n spec:"),
        "5:2: wrong indentation: begin in column 1, like line 3",
    ),
    (
        "escape in a flow map",
        ladder('params: {pattern: "a\\d"}\n' + RUNGS),
        "5:11: in double quotes a backslash begins an escape: write {pattern: 'a\\d'}",
    ),
    (
        "escape in double quotes",
        validation("\"object.metadata.name.matches(r'^a\\d')\""),
        "7:19: in double quotes a backslash begins an escape: write 'object.metadata.name.matches(r''^a\\d'')'",
    ),
    ("colon in a text", ladder("description: a: b\n" + RUNGS), "5:16: the whole value needs quotes: write 'a: b'"),
    ("open quote", ladder('description: "abc\n' + RUNGS), '5:16: the quote is not closed: write "abc"'),
    ("open list", ladder("match: {namespaces: [a, b}\n" + RUNGS), "5:28: the list is not closed: write ] before this"),
    (
        "open map",
        ladder("match: {excludeNamespaces: [a]\n" + RUNGS),
        "5:10: the map is not closed: write {excludeNamespaces: [a]}",
    ),
    (
        "no comma",
        ladder("match: {namespaces: [a] , excludeNamespaces: [b] operations: [CREATE]}\n" + RUNGS),
        "5:52: two items without a comma: write , before this",
    ),
    ("curly quotes", ladder("description: “a: b”\n" + RUNGS), "5:16: curly quotes are text: write 'a: b'"),
    ("yes for a choice", ladder("offered: yes\n" + RUNGS), "5:12: 'yes' is not one of Allocatable, Available"),
    (
        "off for a choice",
        ladder("mode: off\n" + RUNGS),
        "5:9: 'off' is not one of Enforce, Audit, Off (did you mean 'Off'?)",
    ),
    (
        "octal weight",
        ladder(RUNGS.replace("gpu\n", "gpu\n    weight: 010\n")),
        "7:15: 010 is 8 in YAML 1.1 and 10 in YAML 1.2: write 8 or 10",
    ),
    (
        "leading zero",
        ladder(RUNGS.replace("gpu\n", "gpu\n    weight: 09\n")),
        "7:15: 09 is text to some readers and 9 to others: write 9",
    ),
    (
        "underscore in a number",
        ladder("priority: 1_000\n" + RUNGS),
        "5:13: 1_000 is 1000 in YAML 1.1 and text in YAML 1.2: write 1000",
    ),
    ("sexagesimal", ladder("priority: 1:30\n" + RUNGS), "5:13: 1:30 is 90 in YAML 1.1 and text in YAML 1.2: write 90"),
    (
        "octal amount",
        injection("coefficients: {cpu: 010}"),
        "5:23: 010 is 8 in YAML 1.1 and 10 in YAML 1.2: write 8 or 10",
    ),
    (
        "octal label",
        ladder("match: {objectSelector: {matchLabels: {a: 010}}}\n" + RUNGS),
        '5:45: 010 is 8 in YAML 1.1 and 10 in YAML 1.2: write "010"',
    ),
    (
        "yes in a label",
        ladder("match: {objectSelector: {matchLabels: {a: yes}}}\n" + RUNGS),
        '5:45: yes is a boolean in YAML 1.1 and text in YAML 1.2: write "yes"',
    ),
    (
        "on in params",
        ladder("params: {a: on}\n" + RUNGS),
        '5:15: on is a boolean in YAML 1.1 and text in YAML 1.2: write true, or "on" for the text',
    ),
    (
        "sexagesimal in params",
        ladder("params: {a: 1:30}\n" + RUNGS),
        '5:15: 1:30 is 90 in YAML 1.1 and text in YAML 1.2: write 90, or "1:30" for the text',
    ),
    ("on as a key", ladder("params: {on: a}\n" + RUNGS), '5:12: a key must be text: write "on"'),
    (
        "date",
        ladder("description: 2026-11-22\n" + RUNGS),
        '5:16: 2026-11-22 is a date in YAML 1.1 and text in YAML 1.2: write "2026-11-22"',
    ),
    (
        "yes for a boolean",
        ladder(RUNGS.rstrip("\n") + "\n    assume: yes"),
        "8:15: yes is a boolean in YAML 1.1 and text in YAML 1.2: write true",
    ),
    (
        "name that is a boolean",
        ladder().replace("example", "n"),
        '3:18: n is a boolean in YAML 1.1 and text in YAML 1.2: write "n"',
    ),
    (
        "pod's name that is a boolean",
        rule_test("{metadata: {name: n}, spec: {containers: [{name: main}]}}"),
        '8:30: n is a boolean in YAML 1.1 and text in YAML 1.2: write "n"',
    ),
    (
        "container's name that is a boolean",
        rule_test("{spec: {containers: [{name: y}]}}"),
        '8:40: y is a boolean in YAML 1.1 and text in YAML 1.2: write "y"',
    ),
    (
        "pod's field that is a boolean",
        rule_test("{spec: {hostIPC: no, containers: [{name: main}]}}"),
        "8:29: no is a boolean in YAML 1.1 and text in YAML 1.2: write false",
    ),
    (
        "pod's number",
        rule_test("{spec: {priority: 1_0, containers: [{name: main}]}}"),
        "8:30: 1_0 is 10 in YAML 1.1 and text in YAML 1.2: write 10",
    ),
    (
        "pod's node selector",
        rule_test("{spec: {nodeSelector: {gpu: yes}, containers: [{name: main}]}}"),
        '8:40: yes is a boolean in YAML 1.1 and text in YAML 1.2: write "yes"',
    ),
)

FIELDS: Sequence[Row] = (
    (
        "no space after the colon",
        ladder("rungs:\n  - resource:nvidia.com/gpu\n  - resource: nvidia.com/mig-3g.40gb"),
        "6:7: item 1 of rungs must be a map, not text: write resource: nvidia.com/gpu",
    ),
    (
        "no space after the colon in a map",
        ladder("rungs: [{resource:nvidia.com/gpu}, {resource: nvidia.com/mig-3g.40gb}]"),
        "5:12: rung has no field 'resource:nvidia.com/gpu': write resource: nvidia.com/gpu",
    ),
    (
        "file for a pod",
        case("cases: [{name: one, pod: pod.yaml, expect: {allowed: true}}]"),
        "6:23: pod must be a map, not text: write podFile: pod.yaml",
    ),
    (
        "file for a pod in a block",
        case("cases:\n  - name: one\n    pod: pod.yaml\n    expect: {allowed: true}"),
        "8:7: pod must be a map, not text: write podFile: pod.yaml",
    ),
    (
        "file for an expected pod",
        rule_test(POD, "expect: {pod: pod.yaml}"),
        "9:16: pod must be a map, not text: write podFile: pod.yaml",
    ),
    (
        "file for a cluster",
        case(f"cluster: cluster.yaml\ncases: [{{name: one, pod: {POD}, expect: {{allowed: true}}}}]"),
        "6:12: cluster must be a map, not text: write {file: cluster.yaml}",
    ),
    (
        "file for one of several clusters",
        case(f"clusters: {{a: cluster.yaml}}\ncases: [{{name: one, pod: {POD}, expect: {{allowed: true}}}}]"),
        "6:17: a must be a map, not text: write {file: cluster.yaml}",
    ),
    *(
        (
            f"{field} without a container",
            rule_test(POD, f"expect: {{{field}: {{nvidia.com/gpu: 2}}}}"),
            (f"9:{19 + len(field)}: nvidia.com/gpu must be a map, not a number: write main: {{nvidia.com/gpu: 2}}"),
        )
        for field in ("containers", "limits", "requests")
    ),
    (
        "audited containers without a container",
        rule_test(POD, "expect: {audited: [{rule: FallbackLadder/example, containers: {cpu: 500m}}]}"),
        "9:70: cpu must be a map, not text: write main: {cpu: 500m}",
    ),
    *(
        (
            f"{written} for a verdict",
            rule_test(POD, f"expect: {{{written}}}"),
            f"9:16: expectation has no field '{written.split(':')[0]}': write {meant}",
        )
        for written, meant in (
            ("denied: true", "allowed: false"),
            ("rejected: false", "allowed: true"),
            ("admitted: true", "allowed: true"),
            ("allow: false", "allowed: false"),
        )
    ),
    (
        "no space after a dash",
        ladder("rungs:\n  -resource: nvidia.com/gpu"),
        "6:5: rungs must be a list, not a map: write - resource",
    ),
    (
        "another dash",
        ladder("rungs:\n  – resource: nvidia.com/gpu"),
        "6:5: rungs must be a list, not a map: write - resource",
    ),
    (
        "no dash before several fields",
        ladder("rungs:\n  resource: nvidia.com/gpu\n  weight: 7"),
        "6:5: rungs must be a list, not a map: write - resource, and indent the lines of the same item by two more",
    ),
    (
        "resources as rungs",
        ladder("rungs: [nvidia.com/gpu]"),
        "5:11: item 1 of rungs must be a map, not text: write {resource: nvidia.com/gpu}",
    ),
    (
        "expressions as validations",
        document("Validation", "match: {resources: ['*/*']}\nvalidations:\n  - object.metadata.name != 'a'"),
        "7:7: item 1 of validations must be a map, not text: write {expression: \"object.metadata.name != 'a'\"}",
    ),
    (
        "text that is a boolean",
        ladder(RUNGS.rstrip("\n") + '\n    assume: "true"'),
        "8:16: assume must be true or false, not text: write true without quotes",
    ),
    (
        "text that is a number",
        ladder("priority: '10'\n" + RUNGS),
        "5:14: priority must be a whole number, not text: write 10 without quotes",
    ),
    ("True as an expression", validation("True"), '7:19: expression must be text, not a boolean: write "true"'),
    ("false as an expression", validation("false"), '7:19: expression must be text, not a boolean: write "false"'),
    (
        "yes as an expression",
        validation("yes"),
        '7:19: yes is a boolean in YAML 1.1 and text in YAML 1.2: write "true"',
    ),
    ("number as a name", ladder().replace("example", "1"), '3:18: name must be text, not a number: write "1"'),
    (
        "labels as a selector",
        ladder("match: {objectSelector: {app: x}}\n" + RUNGS),
        "5:27: label selector has no field 'app': write {matchLabels: {app: x}}",
    ),
    (
        "several labels as a selector",
        ladder("match: {namespaceSelector: {app: x, example.com/team: 'true'}}\n" + RUNGS),
        "5:30: label selector has no field 'app': write {matchLabels: {app: x, example.com/team: \"true\"}}",
    ),
    (
        "label as a selector in a block",
        ladder("match:\n  objectSelector:\n    app: x\n" + RUNGS),
        "7:7: label selector has no field 'app': write matchLabels: {app: x}",
    ),
    (
        "labels of nodes",
        ladder("nodes: {selector: {gpu: a100}}\n" + RUNGS),
        "5:21: label selector has no field 'gpu': write {matchLabels: {gpu: a100}}",
    ),
    (
        "selector of kubectl",
        ladder("match: {objectSelector: 'app=x,team=y'}\n" + RUNGS),
        '5:28: objectSelector must be a map, not text: write {matchLabels: {app: x, team: "y"}}',
    ),
    (
        "labels of kubectl",
        ladder("match: {objectSelector: {matchLabels: app=x}}\n" + RUNGS),
        "5:41: matchLabels must be a map, not text: write {app: x}",
    ),
    (
        "requirement without a list",
        ladder("match: {objectSelector: {matchExpressions: {key: app, operator: Exists}}}\n" + RUNGS),
        "5:46: matchExpressions must be a list, not a map: write [{key: app, operator: Exists}]",
    ),
    (
        "namespace for namespaces",
        ladder("match: {namespace: [team-a]}\n" + RUNGS),
        "5:11: match has no field 'namespace' (did you mean 'namespaces'?)",
    ),
    (
        "text for a list",
        ladder("match: {namespaces: team-a}\n" + RUNGS),
        "5:23: namespaces must be a list, not text: write [team-a]",
    ),
    (
        "asterisk for a list",
        ladder("match: {namespaces: '*'}\n" + RUNGS),
        '5:24: namespaces must be a list, not text: write ["*"]',
    ),
    (
        "commas for a list",
        ladder('match: {namespaces: "team-a, team-b"}\n' + RUNGS),
        "5:24: namespaces must be a list, not text: write [team-a, team-b]",
    ),
    (
        "map of variables",
        ladder("variables: {a: object.metadata.name}\n" + RUNGS),
        "5:14: variables must be a list, not a map: write [{name: a, expression: object.metadata.name}]",
    ),
    (
        "list of coefficients",
        injection("coefficients: [cpu: 4]"),
        "5:17: coefficients must be a map, not a list: write {cpu: 4}",
    ),
    (
        "list of namespaces",
        injection("namespaces: [{name: a, coefficients: {cpu: 1}}]"),
        "5:15: namespaces must be a map, not a list: write {a: {coefficients: {cpu: 1}}}",
    ),
    (
        "snake case",
        ladder("when_exhausted: Deny\n" + RUNGS),
        "5:3: FallbackLadder spec has no field 'when_exhausted' (did you mean 'whenExhausted'?)",
    ),
    (
        "capital",
        ladder("Direction: Down\n" + RUNGS),
        "5:3: FallbackLadder spec has no field 'Direction' (did you mean 'direction'?)",
    ),
    (
        "name at the top",
        ladder().replace("metadata: {name: example}", "name: example"),
        "3:1: FallbackLadder has no field 'name': write metadata: {name: example}",
    ),
    (
        "kind",
        ladder().replace("Fallback", "FallBack"),
        "2:7: unknown kind 'FallBackLadder' (did you mean 'FallbackLadder'?)",
    ),
    (
        "version",
        ladder().replace("/v1", "/v1beta1"),
        "1:13: unknown apiVersion 'gpurules.io/v1beta1': write gpurules.io/v1",
    ),
    (
        "small letter",
        ladder("mode: audit\n" + RUNGS),
        "5:9: 'audit' is not one of Enforce, Audit, Off (did you mean 'Audit'?)",
    ),
    (
        "curly quotes around a choice",
        ladder("mode: “Audit”\n" + RUNGS),
        "5:9: '“Audit”' is not one of Enforce, Audit, Off (did you mean 'Audit'?)",
    ),
    (
        "curly quotes around a name",
        ladder("match: {namespaces: [“team-a”]}\n" + RUNGS),
        "5:24: '“team-a”' is not a namespace name or glob: write team-a",
    ),
    ("rule's name", ladder().replace("example", "My_Ladder"), "3:18: 'My_Ladder' is not a DNS name: write my-ladder"),
    (
        "variable's name",
        ladder("variables: [{name: my-var, expression: object}]\n" + RUNGS),
        "5:22: 'my-var' is not a CEL identifier: write my_var",
    ),
    (
        "resource without a domain",
        ladder("rungs: [{resource: gpu}]"),
        "5:22: 'gpu' is not an extended resource name: write nvidia.com/gpu",
    ),
    (
        "profile without a domain",
        ladder("rungs: [{resource: mig-3g.40gb}]"),
        "5:22: 'mig-3g.40gb' is not an extended resource name: write nvidia.com/mig-3g.40gb",
    ),
    (
        "plus in a resource",
        ladder("rungs: [{resource: nvidia.com/a+b}]"),
        (
            "5:22: 'nvidia.com/a+b' is not an extended resource name: in a resource's name + is written as a dot,"
            " write nvidia.com/a.b"
        ),
    ),
    ("mem", injection("coefficients: {mem: 8Gi}"), "5:18: 'mem' is not a resource name: write memory"),
    ("space before the unit", injection("coefficients: {memory: 1 Gi}"), "5:26: '1 Gi' is not a quantity: write 1Gi"),
    ("millicores with a space", injection("coefficients: {cpu: 500 m}"), "5:23: '500 m' is not a quantity: write 500m"),
    ("gigabytes", injection("coefficients: {memory: 80GB}"), "5:26: '80GB' is not a quantity: write 80G or 80Gi"),
    ("gibibytes", injection("coefficients: {memory: 80GiB}"), "5:26: '80GiB' is not a quantity: write 80Gi"),
    (
        "kilobytes",
        injection("coefficients: {memory: 9000KB}"),
        "5:26: '9000KB' is not a quantity: write 9000k or 9000Ki",
    ),
    ("decimal comma", injection("coefficients: {memory: '1,5Gi'}"), "5:27: '1,5Gi' is not a quantity: write 1.5Gi"),
    ("thousands", injection("coefficients: {memory: '4,000Mi'}"), "5:27: '4,000Mi' is not a quantity: write 4000Mi"),
    ("cores", injection("coefficients: {cpu: 4 cores}"), "5:23: '4 cores' is not a quantity: write 4"),
    ("millicores", injection("coefficients: {cpu: 400 mCPU}"), "5:23: '400 mCPU' is not a quantity: write 400m"),
    (
        "misspelt containers",
        rule_test("{spec: {contianers: [{name: main}]}}"),
        "8:20: PodSpec has no field 'contianers' (did you mean 'containers'?)",
    ),
    (
        "misspelt spec",
        rule_test("{sepc: {containers: [{name: main}]}}"),
        "8:13: a Pod has no field 'sepc' (did you mean 'spec'?)",
    ),
    (
        "containers that are a map",
        rule_test("{spec: {containers: {name: main}}}"),
        "8:32: containers must be a list, not a map: write [{name: main}]",
    ),
    (
        "text for an expectation",
        rule_test("{spec: {containers: [{name: main}]}}", "expect: {allowed: 'yes'}"),
        "9:26: allowed must be true or false, not text: write true without quotes",
    ),
)

EXPRESSIONS: Sequence[Row] = (
    (
        "amount without quotes",
        validation("object.spec.containers.all(c, quantity(c.resources.limits.memory) < 64Gi)"),
        "7:87: unexpected '64Gi' (write quantity('64Gi'))",
    ),
    (
        "resource after a dot",
        validation("object.spec.containers.all(c, c.resources.limits.nvidia.com/gpu <= 8)"),
        "7:67: 'nvidia.com/gpu' is not a name (write ['nvidia.com/gpu'])",
    ),
    (
        "quoted key after a dot",
        validation("object.metadata.annotations.\"a/b\" == 'x'"),
        '7:46: unexpected \'."a/b"\' (write ["a/b"])',
    ),
    (
        "key after a dot",
        validation("object.metadata.annotations.example.com/team == 'x'"),
        "7:46: 'example.com/team' is not a name (write ['example.com/team'])",
    ),
    (
        "key with a dash after a dot",
        validation("object.metadata.labels.app-name == 'x'"),
        "7:41: 'app-name' is not a name (write ['app-name'])",
    ),
    (
        "size without a call",
        validation("object.spec.containers.size < 3"),
        "7:42: list(Container) has no fields (write ….size())",
    ),
    (
        "size of a map without a call",
        validation("object.metadata.labels.size < 3"),
        "7:42: a map has no field 'size' (write ….size())",
    ),
    ("length", validation("object.metadata.name.length < 9"), "7:40: string has no fields (write ….size())"),
    (
        "template",
        validation("{{ request.object.metadata.name }} == 'x'"),
        "7:19: templates are not expanded: write object.metadata.name == 'x'",
    ),
    (
        "template before a colon",
        validation("{{ object.spec.hostIPC }} ? true : false"),
        "7:19: templates are not expanded: write 'object.spec.hostIPC ? true : false'",
    ),
    (
        "template as a whole",
        validation("{{ object.spec.hostIPC }}"),
        "7:19: templates are not expanded: write object.spec.hostIPC",
    ),
    (
        "template in quotes",
        validation("\"{{ object.metadata.name }} == 'x'\""),
        "7:20: unexpected '{{ object.metadata.n…' (write object.metadata.name)",
    ),
    (
        "shell",
        validation("${object.metadata.name} == 'x'"),
        "7:19: unexpected '${object.metadata.na…' (write object.metadata.name)",
    ),
    ("curly quotes", validation("object.metadata.name == “x”"), "7:43: unexpected '“x”' (write 'x')"),
    ("single curly quotes", validation("object.metadata.name == ‘x’"), "7:43: unexpected '‘x’' (write 'x')"),
    (
        "True in an expression",
        validation("object.spec.hostIPC == True"),
        "7:42: undeclared reference to 'True' (write true)",
    ),
    ("single equals sign", validation("object.metadata.name = 'x'"), "7:40: unexpected '=' (write ==)"),
    ("and", validation("object.spec.hostIPC and object.spec.hostPID"), "7:39: unexpected 'and' (write &&)"),
    ("or", validation("object.spec.hostIPC OR object.spec.hostPID"), "7:39: unexpected 'OR' (write ||)"),
    ("not", validation("not object.spec.hostIPC"), "7:19: unexpected 'not' (write !)"),
    (
        "not further on",
        validation("object.spec.hostIPC && not object.spec.hostPID"),
        "7:42: unexpected 'not' (write !)",
    ),
    (
        "negation",
        validation("!object.spec.hostIPC"),
        '7:19: text cannot begin with !, which is for tags: write "!object.spec.hostIPC"',
    ),
    (
        "negated call",
        validation("!has(object.spec.hostIPC)"),
        '7:19: text cannot begin with !, which is for tags: write "!has(object.spec.hostIPC)"',
    ),
    (
        "not null",
        validation("object.spec.nodeName != null"),
        "7:19: operator != cannot be applied to string and null_type (write has(object.spec.nodeName))",
    ),
    (
        "null",
        validation("object.spec.nodeName == null"),
        ("7:19: operator == cannot be applied to string and null_type (write !has(object.spec.nodeName))"),
    ),
    (
        "label not null",
        validation("object.metadata.labels['team'] != null"),
        (
            "7:19: operator != cannot be applied to string and null_type"
            " (write object.metadata.?labels[?'team'].hasValue())"
        ),
    ),
    ("None", validation("object.metadata.labels != None"), "7:45: undeclared reference to 'None' (write null)"),
    (
        "index in has",
        validation('has(object.metadata.labels["team"])'),
        ('7:19: has() takes a field selection such as has(a.b) (write "team" in object.metadata.?labels.orValue({}))'),
    ),
    (
        "slash in has",
        validation("object.spec.hostIPC || has(object.metadata.labels.a.b/team)"),
        (
            "7:42: has() takes a field selection such as has(a.b)"
            " (write 'a.b/team' in object.metadata.?labels.orValue({}))"
        ),
    ),
    (
        "index without quotes",
        validation("object.metadata.labels[team] == 'x'"),
        "7:42: undeclared reference to 'team' (write 'team')",
    ),
    (
        "contains of a map",
        validation("object.spec.hostIPC || object.metadata.labels.contains('team')"),
        "7:42: map(string, string) has no contains() (write 'team' in object.metadata.?labels.orValue({}))",
    ),
    (
        "text in text",
        validation("object.spec.hostIPC || 'a' in object.metadata.name"),
        "7:42: operator in cannot be applied to string and string (write object.metadata.name.contains('a'))",
    ),
    (
        "number in quotes",
        validation("object.spec.containers.size() == '1'"),
        "7:19: operator == cannot be applied to int and string (write object.spec.containers.size() == 1)",
    ),
    (
        "object of the request",
        validation("request.object.spec.hostIPC"),
        "7:19: AdmissionRequest has no field 'object' (write object)",
    ),
    ("spec", validation("spec.hostIPC"), "7:19: undeclared reference to 'spec' (write object.spec)"),
    ("self", validation("self.spec.hostIPC"), "7:19: undeclared reference to 'self' (write object)"),
    ("arrow", validation("object.spec.containers.all(c -> c.tty)"), "7:48: unexpected '->' (write ,)"),
    ("double arrow", validation("object.spec.containers.all(c => c.tty)"), "7:48: unexpected '=>' (write ,)"),
    ("semicolon", validation("object.spec.hostIPC;"), "7:38: unexpected ';' (delete it)"),
    ("return", validation("return object.spec.hostIPC"), "7:19: unexpected 'return' (delete it)"),
    (
        "glob as a pattern",
        validation("object.metadata.name.matches('*-prod')"),
        "7:48: invalid regular expression: no argument for repetition operator: * (write '.*-prod')",
    ),
    (
        "single quotes in single quotes",
        validation("'object.metadata.name == 'x''"),
        "7:19: ' inside of ' ends the value: write \"object.metadata.name == 'x'\"",
    ),
    (
        "double quotes in double quotes",
        validation('"object.metadata.name == "x""'),
        '7:19: " inside of " ends the value: write \'object.metadata.name == "x"\'',
    ),
    ("quotes at both ends", validation('"a" == "b"'), '7:19: the whole value needs quotes: write \'"a" == "b"\''),
    (
        "quote at the beginning",
        validation("'x' in object.metadata.labels"),
        "7:19: the whole value needs quotes: write \"'x' in object.metadata.labels\"",
    ),
    (
        "list at the beginning",
        validation("['a', 'b'].exists(x, x == object.metadata.name)"),
        "7:19: the whole value needs quotes: write \"['a', 'b'].exists(x, x == object.metadata.name)\"",
    ),
    (
        "conditional",
        validation("object.spec.hostIPC ? true : false"),
        "7:19: the whole value needs quotes: write 'object.spec.hostIPC ? true : false'",
    ),
    (
        "both quotes and a colon",
        validation("object.spec.hostIPC ? object.metadata.name == 'a' : object.metadata.name == \"b\""),
        (
            "7:19: the whole value needs quotes:"
            " write 'object.spec.hostIPC ? object.metadata.name == ''a'' : object.metadata.name == \"b\"'"
        ),
    ),
    (
        "second line too far left",
        validation("object.spec.hostIPC &&\n    object.spec.hostPID"),
        "8:7: this continues the value above: write it 2 spaces further right",
    ),
    (
        "block too far left",
        validation("|\n    object.spec.hostIPC &&\n    object.spec.hostPID"),
        "8:7: the text of a block begins further right than its key: write it 2 spaces further right",
    ),
    (
        "conditional over two lines",
        validation("object.spec.hostIPC ? true\n      : false"),
        "7:19: a value with this text needs a block: write | here, and the text on lines of its own below",
    ),
)


TEMPLATE = "templates are not expanded: write the value, or render the file first"

ADVICE: Sequence[Row] = (
    ("time without a unit", arrival("at: 90"), "7:11: at must be text, not a number: write a duration such as 90s"),
    ("time with a word", arrival("at: 5min"), "7:11: '5min' is not a duration such as 1h30m"),
    ("negative time", arrival("at: -5s"), "7:11: '-5s' is not a duration: it cannot be negative"),
    ("no duration", arrival("at: soon"), "7:11: 'soon' is not a duration such as 1h30m"),
    ("template", ladder("priority: {{ .Values.priority }}\n" + RUNGS), f"5:13: {TEMPLATE}"),
    ("template in a list", ladder("match: {namespaces: [{{ x }}]}\n" + RUNGS), f"5:24: {TEMPLATE}"),
    ("template before text", ladder("match:\n  namespaces:\n    - {{ x }}-prod\n" + RUNGS), f"7:9: {TEMPLATE}"),
    ("line of a template", ladder("{{- if .Values.x }}\n" + RUNGS), f"5:3: {TEMPLATE}"),
    ("line of another template", ladder("{% if x %}\n" + RUNGS), f"5:3: {TEMPLATE}"),
    (
        "template in a message",
        validation("object.spec.hostIPC\n    message: {{ object.metadata.name }} is wrong"),
        f"8:16: {TEMPLATE}",
    ),
    (
        "template in quotes",
        ladder("match: {namespaces: ['{{ x }}']}\n" + RUNGS),
        "5:25: '{{ x }}' is not a namespace name or glob: templates are not expanded",
    ),
    (
        "template in a message in quotes",
        validation("object.spec.hostIPC\n    message: 'not for {{ object.metadata.name }}'"),
        (
            "8:17: 'not for {{ object.metadata.name }}' is not a message: templates are not expanded"
            ", use messageExpression"
        ),
    ),
    (
        "template in an expression",
        validation("'{{ .Values.x }} == 1'"),
        "7:20: unexpected '{{ .Values.x }}' (write the value: templates are not expanded)",
    ),
    (
        "field of another part",
        ladder("match: {mode: Audit}\n" + RUNGS),
        "5:11: match has no field 'mode': it belongs below 'spec'",
    ),
    (
        "list of another part",
        ladder("match: {operations: [CREATE]}\nnamespaces: [a]\n" + RUNGS),
        "6:3: FallbackLadder spec has no field 'namespaces': it belongs below 'match'",
    ),
    (
        "labels beside matchLabels",
        ladder("match: {objectSelector: {matchLabels: {a: b}, app: x}}\n" + RUNGS),
        "5:49: label selector has no field 'app'",
    ),
    (
        "map in place of a list of other maps",
        ladder("rungs:\n  nvidia.com/gpu: 7"),
        "6:5: rungs must be a list, not a map",
    ),
    (
        "containers beside spec",
        rule_test("{containers: [{name: main}]}"),
        "8:13: 'containers' belongs below 'spec': write spec: {containers: …}",
    ),
    (
        "containers that are a text",
        rule_test("{spec: {containers: main}}"),
        "8:7: expected a Pod (spec, with a list of containers) or something with a pod template",
    ),
    (
        "no spec",
        rule_test("{}"),
        "8:7: expected a Pod (spec, with a list of containers) or something with a pod template",
    ),
    (
        "no containers",
        rule_test("{spec: {nodeName: a}}"),
        "8:7: expected a Pod (spec, with a list of containers) or something with a pod template",
    ),
    (
        "boolean for a number of a pod",
        rule_test("{spec: {priority: yes, containers: [{name: main}]}}"),
        '8:30: yes is a boolean in YAML 1.1 and text in YAML 1.2: write true, or "yes" for the text',
    ),
    (
        "list for a boolean of a pod",
        rule_test("{spec: {hostIPC: [no], containers: [{name: main}]}}"),
        "8:29: must be a boolean, not a list",
    ),
    (
        "running pod's name that is a boolean",
        document(
            "ClusterInventory",
            "nodes: [{name: a}]\npods: [{metadata: {name: n}, spec: {nodeName: a, containers: [{name: main}]}}]",
        ),
        '6:28: n is a boolean in YAML 1.1 and text in YAML 1.2: write "n"',
    ),
    ("number for a choice", ladder("offered: 010\n" + RUNGS), "5:12: '010' is not one of Allocatable, Available"),
    (
        "infinite amount",
        injection("coefficients: {cpu: 1e400}"),
        "5:23: '1e400' is too large: an exponent is at most 60",
    ),
    (
        "share of an amount",
        injection("coefficients: {memory: 50%}"),
        (
            "5:26: '50%' is not a quantity: write a number, then one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi"
            ", Ei or an exponent"
        ),
    ),
    (
        "tag of YAML",
        ladder("description: !!str 12\n" + RUNGS),
        "5:16: !!str is a tag, and tags are not supported: put text in quotes, write the rest plainly",
    ),
    ("list as a key", ladder("params: {[a]: b}\n" + RUNGS), "5:12: a key must be text, not a list or a map"),
    ("comment in JSON", '{"a": 1, // one\n"kind": 2}', "2:7: the map is not closed: expected ',' or '}'"),
    (
        "text in a list that is no item",
        ladder(f"rungs: [{'a' * 200}]"),
        "5:11: item 1 of rungs must be a map, not text",
    ),
    (
        "amounts without a container",
        rule_test(POD, "expect: {limits: {nvidia.com/gpu: 2, cpu: 1}}"),
        "9:25: nvidia.com/gpu must be a map, not a number: it belongs below the name of a container",
    ),
    *(
        (
            f"amount without a container, which is {where}",
            rule_test(pod, "expect: {limits: {cpu: 1}}"),
            "9:25: cpu must be a map, not a number: it belongs below the name of a container",
        )
        for where, pod in (
            ("one of two", "{spec: {containers: [{name: a}, {name: b}]}}"),
            ("nameless", "{spec: {containers: [{image: a}]}}"),
            ("in a template", "{kind: Job, spec: {template: {spec: {containers: [{name: a}]}}}}"),
        )
    ),
    (
        "boolean for an amount without a container",
        rule_test(POD, "expect: {limits: {cpu: true}}"),
        "9:30: cpu must be a map, not a boolean",
    ),
    ("list of amounts", rule_test(POD, "expect: {limits: [{cpu: 1}]}"), "9:24: limits must be a map, not a list"),
    (
        "text for a verdict",
        rule_test(POD, "expect: {denied: policy}"),
        "9:16: expectation has no field 'denied' (did you mean 'decidedBy'?)",
    ),
    (
        "long value",
        ladder(f"description: a: {'b' * 200}\n" + RUNGS),
        "5:17: a second ': ' on this line: put the value in quotes, or use a block (|)",
    ),
    (
        "long line",
        ladder(f"description: a: {'b' * 2_000}\n" + RUNGS),
        "5:17: a second ': ' on this line: put the value in quotes, or use a block (|)",
    ),
    (
        "large document",
        ladder(f"description: a: b\n{RUNGS}{'#' * 70_000}"),
        "5:17: a second ': ' on this line: put the value in quotes, or use a block (|)",
    ),
    (
        "two mistakes",
        ladder("description: a: b\ngpu: c: d\n" + RUNGS),
        "5:16: the whole value needs quotes: write 'a: b'",
    ),
)
"""Messages without a text to copy: there is none, or it depends on what is meant."""


BESIDE = {
    "rules.yaml": ladder(),
    "pod.yaml": f"apiVersion: v1\nkind: Pod\nmetadata: {{name: one}}\n{POD[1:-1]}\n",
    "cluster.yaml": document("ClusterInventory", "nodes: [{name: worker}]"),
}
"""Files that the examples name."""


def errors(folder: Path) -> list[Problem]:
    problems = check_files([folder / "example.yaml"]).answer.problems
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def shown(problem: Problem) -> str:
    return f"{problem.location.line}:{problem.location.column}: {problem.message}"


def remedied(text: str, problem: Problem) -> list[str]:
    """Return the text after each of the remedies that a message offers."""
    lines = text.split("\n")
    number, start = problem.location.line - 1, problem.location.column - 1
    line, end, message = lines[number], start + problem.length, problem.message

    def changed(*new: str, count: int = 1) -> str:
        return "\n".join([*lines[:number], *new, *lines[number + count :]])

    if message.endswith("use spaces"):
        return [text.replace("\t", "  ")]
    if match := re.search(r"begin in column ([0-9]+)", message):
        return [changed(" " * (int(match[1]) - 1) + line.lstrip())]
    if match := re.search(r"write it ([0-9]+) spaces further right", message):
        count = len(lines) - number if "block" in message else 1
        return [changed(*(" " * int(match[1]) + moved for moved in lines[number : number + count]), count=count)]
    if message.endswith("write | here, and the text on lines of its own below"):
        return [changed(f"{line[:start]}|", f"        {line[start:]}")]
    if match := re.search(r"write (.) before this", message):
        return [changed(f"{line[:start]}{match[1]}{line[start:]}")]
    if message.endswith("(delete it)"):
        return [changed(line[:start] + line[end:])]
    if "cel-" not in problem.code and line[start - 1] in "'\"" and line[end : end + 1] == line[start - 1]:
        # The marked text is inside of quotes, which belong to the value.
        start, end = start - 1, end + 1
    texts = alternatives(message)
    if "indent the lines of the same item by two more" in message:
        return [
            changed(
                f"{line[:start]}{new}{line[end:]}", *(f"  {more}" for more in lines[number + 1 :]), count=len(lines)
            )
            for new in texts
        ]
    member = re.match(r": *[^ {},][^{},]*", line[end:])
    # The remedy of a marked key is written in place of its value, too.
    if member and all(": " in new for new in texts):
        end += member.end()
    elif re.search(r"write [a-zA-Z]+: \{", message):
        end = len(line)
    after = [f"{line[:start]}{new}{line[end:]}" for new in texts]
    return [changed(new) for new in after]


def alternatives(message: str) -> list[str]:
    """Return the texts that a message advises to write."""
    if found := re.search(r"\(did you mean '(.*)'\?\)$", message):
        return [found[1]]
    if found := re.search(r"is not one of (.*)$", message):
        return found[1].split(", ")
    found = re.search(r" \((?:amounts are strings: )?write (.*)\)$", message) or re.search(r"[:,] write (.*)$", message)
    assert found, message
    advised = re.sub(r" without quotes$|, and indent .*$", "", found[1]).removeprefix("….")
    if choice := re.fullmatch(r"(.*), or (.*) for the text", advised):
        return [*choice[1].split(" or "), choice[2]]
    advised = advised.removesuffix(" for the text")
    return advised.split(" or ") if re.fullmatch(r"\S+ or \S+", advised) else [advised]


ROWS = [
    pytest.param(*row, id=f"{area}: {row[0]}")
    for area, rows in (("YAML", YAML), ("fields", FIELDS), ("expressions", EXPRESSIONS))
    for row in rows
]


@pytest.mark.parametrize(("mistake", "text", "message"), ROWS)
def test_a_remedy_leaves_no_error(tmp_path: Path, mistake: str, text: str, message: str) -> None:
    folder = write(tmp_path, {"example.yaml": text, **BESIDE})
    assert shown(errors(folder)[0]) == message, mistake
    for after in remedied(text, errors(folder)[0]):
        write(tmp_path, {"example.yaml": after})
        for _ in range(MAX_ROUNDS - 1):
            left = errors(folder)
            if left:
                after = remedied(after, left[0])[0]
                write(tmp_path, {"example.yaml": after})
        assert [shown(problem) for problem in errors(folder)] == [], after
        write(tmp_path, {"example.yaml": text})


@pytest.mark.parametrize(("mistake", "text", "message"), [pytest.param(*row, id=row[0]) for row in ADVICE])
def test_advice_is_about_the_mistake(tmp_path: Path, mistake: str, text: str, message: str) -> None:
    name = "example.json" if text.startswith("{") else "example.yaml"
    folder = write(tmp_path, {name: text, "rules.yaml": ladder()})
    errors = [problem for problem in check_files([folder / name]).answer.problems if problem.severity is Severity.ERROR]
    assert shown(errors[0]) == message, mistake


@pytest.mark.parametrize(
    ("expression", "remedied_expression"),
    [
        ("object.metadata.labels['team'] != 'training'", "object.metadata.?labels[?'team'].orValue('') != 'training'"),
        ('object.metadata.labels["team"] != "a"', 'object.metadata.?labels[?"team"].orValue("") != "a"'),
        ("object.spec.hostIPC == false", "object.spec.?hostIPC.orValue(false) == false"),
        ("object.spec.priority < 1", "object.spec.?priority.orValue(0) < 1"),
        ("object.spec.tolerations.all(t, has(t.key))", "object.spec.?tolerations.orValue([]).all(t, has(t.key))"),
        ("'a' in object.spec.nodeSelector == false", "'a' in object.spec.?nodeSelector.orValue({}) == false"),
        ("has(object.spec.affinity.podAffinity) == false", "object.spec.?affinity.podAffinity.hasValue() == false"),
        ("[1].all(n, object.spec.affinity == null)", "[1].all(n, !has(object.spec.affinity))"),
        (
            "[1].all(n, object.spec.affinity.podAffinity == null)",
            "[1].all(n, !object.spec.?affinity.podAffinity.hasValue())",
        ),
        (
            "object.spec.containers.all(c, quantity(c.resources.limits['a/b']) == quantity('0'))",
            "object.spec.containers.all(c, quantity(c.?resources.limits[?'a/b'].orValue('0')) == quantity('0'))",
        ),
    ],
)
def test_an_expression_with_its_remedy_is_evaluated_for_a_pod_without_the_member(
    tmp_path: Path, expression: str, remedied_expression: str
) -> None:
    quote = "'" if '"' in expression else '"'
    text = validation(f"{quote}{expression}{quote}")
    path = write(tmp_path, {"example.yaml": text}) / "example.yaml"
    [problem] = check_files([path]).answer.problems
    assert problem.code == "cel-absent"
    [after] = remedied(text, problem)
    assert after == text.replace(expression, remedied_expression)
    path.write_text(after)
    assert check_files([path]).answer.problems == ()
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "resources": {}}]}}
    for written, expected in ((expression, "no such key"), (remedied_expression, True)):
        kind, value = both(compile_expression(SourceText.inline(written), ENVIRONMENT), {"object": pod})
        assert value is expected if kind == "value" else str(expected) in value


def test_a_file_in_place_of_a_pod_is_not_one(tmp_path: Path) -> None:
    case = document(
        "RuleTest", "rules: [rules.yaml]\ncases:\n  - {name: one, podFile: pod.yaml, expect: {allowed: true}}"
    )
    folder = write(tmp_path, {"example.yaml": case, "rules.yaml": ladder(), "pod.yaml": "text"})
    assert [shown(problem) for problem in errors(folder)] == [
        "7:28: expected a Pod (spec, with a list of containers) or something with a pod template"
    ]


def test_an_amount_of_a_pod_that_is_no_quantity_is_a_warning(tmp_path: Path) -> None:
    amounts = "{memory: 1 Gi, cpu: -1, nvidia.com/gpu: one, a/b: null, a/c: 010}"
    text = rule_test(f"{{spec: {{containers: [{{name: main, resources: {{requests: {amounts}}}}}]}}}}")
    folder = write(tmp_path, {"example.yaml": text, **BESIDE})
    problems = [
        problem for problem in check_files([folder / "example.yaml"]).answer.problems if problem.code == "bad-amount"
    ]
    assert {problem.severity for problem in problems} == {Severity.WARNING}
    assert [shown(problem) for problem in problems] == [
        "8:77: '1 Gi' is not a quantity: write 1Gi",
        (
            "8:108: 'one' is not a quantity: write a number, then one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi"
            ", Ei or an exponent"
        ),
    ]


def test_an_error_in_an_expression_that_begins_with_a_negation_has_its_position(tmp_path: Path) -> None:
    path = write(tmp_path, {"example.yaml": validation("!has(object.spec.nodeNam)")}) / "example.yaml"
    places = [(problem.code, problem.location.column) for problem in check_files([path]).answer.problems]
    assert places == [("yaml-tag", 19), ("cel-field", 36)]
