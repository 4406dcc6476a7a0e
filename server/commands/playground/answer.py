"""The playground's answer: problems, decisions and the start of pods, from the three texts of its editors.

The texts are files in the current folder, which the same functions read as for the commands.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from msgspec.structs import replace

from rules_engine import InputError, explain, preflight
from rules_engine.authoring.check.check import check_files
from rules_engine.authoring.check.problem_reference import reference_entries
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.cluster.read.manifest_stream import join_parts, stream_manifests
from rules_engine.language.yaml.text import dump_yaml
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster_objects import API_KINDS
from rules_engine.model.problems.problem import Problem, Severity, unknown_pods
from rules_engine.model.problems.source import escape_controls, truncate
from rules_engine.questions.explain.explain import Explanation, join_pods
from rules_engine.questions.explain.text import explanation_blocks
from rules_engine.questions.preflight.answer import NodeReasons, with_unknown_pods
from rules_engine.questions.preflight.report import preflight_report
from rules_engine.report.answer import answer_text
from rules_engine.report.values import Span
from rules_engine.rules.sources.documents import DIAGNOSTIC
from rules_engine.rules.sources.load import CATALOGUE, COMMAND_KINDS
from rules_engine.rules.sources.rule_files import has_errors
from rules_engine.rules.sources.rule_sources import PathSource, read_sources

RULES_FILE, POD_FILE, CLUSTER_FILE, TEST_FILE = "rules.yaml", "pod.yaml", "cluster.yaml", "rules.test.yaml"

FILES = (RULES_FILE, POD_FILE, CLUSTER_FILE)
"""Names of the texts."""

MAX_TEXT = 1_000
"""Characters of a text of a pod or a file, as in the HTML reports."""

_REMEDIES = {code: entry.remedy for code, entry in reference_entries().items()}

# A catalogue is of the whole process: that of one visitor is not for the others.
_KINDS = (*(kind for kind in COMMAND_KINDS if kind is not CATALOGUE), DIAGNOSTIC)
"""The kinds that are read. A RuleTest or a Simulation may refer to files of the host, so neither is."""


class Example(TypedDict):
    """An example: its texts by file name. One with a cluster only leaves the other texts unchanged."""

    group: str
    title: str
    texts: dict[str, str]


EXAMPLES: Sequence[Example] = json.loads((Path(__file__).parent / "examples.json").read_text(encoding="utf-8"))
"""All examples, which tools.playground_examples collects; the page shows the first."""


def write_texts(folder: str, texts: Mapping[str, str]) -> None:
    """Write texts to files of a folder. Line ends are kept, since they count in locations."""
    for name, text in texts.items():
        (Path(folder) / name).write_text(text, encoding="utf-8", newline="")


def answer_parts() -> Iterator[dict[str, Any]]:
    """Yield the members of the answer as they are known: problems, then decisions and a RuleTest, then the preflight.

    Errors in a text leave out what depends on it.
    """
    rules, pod, cluster = map(Path, FILES)
    reading = read_cluster([cluster])
    checked = check_files([rules], reading, _KINDS)
    sources, view = [PathSource(rules)], reading.with_assumptions(["Pod"])
    files = read_sources(sources)
    pods = join_parts(stream_manifests([pod], files.rule_set.workload_kinds))
    read = (*files.problems, *view.problems)
    # The check has its warnings, some of which comments ignore, but does not require rules.
    errors = [each for each in read if each.severity is Severity.ERROR]
    problems = [*dict.fromkeys((*checked.answer.problems, *errors, *pods.problems))]
    yield {"problems": [*map(_problem_members, problems)]}
    inputs = (*read, *pods.problems)
    if view.objects is None or has_errors(inputs):
        return
    explanations = [explain(files.rule_set, manifest, view.objects) for manifest in pods.pods]
    yield {
        "decisions": [_members([*explanation_blocks(each, skipped=True)]) for each in explanations],
        "explain": json.loads(
            answer_text(join_pods(sources, CLUSTER_FILE, [each.answer for each in explanations], inputs))
        ),
        "test": dump_yaml(_rule_test(explanations)),
    }
    assumed, node_reasons = reading.with_assumptions(API_KINDS), list[NodeReasons]()
    further = [*pods.problems, *assumed.problems]
    result = None
    if assumed.objects is not None:
        try:
            result = preflight(files.rule_set, pods.pods, assumed.objects, name=assumed.name, node_reasons=node_reasons)
            further += result.problems
        except InputError as error:
            further += error.problems
    yield {"problems": [*map(_problem_members, dict.fromkeys((*problems, *further)))]}
    if result is None:
        return
    result = with_unknown_pods(result, pods.problems)
    report = preflight_report(result, node_reasons)
    result = replace(result, rules=RULES_FILE, problems=tuple(dict.fromkeys((*read, *further))))
    yield {
        "report": _members([block for section in report.sections for block in section.blocks]),
        "notices": _members([*report.notices, *unknown_pods(pods.problems)]),
        "preflight": json.loads(answer_text(result)),
    }


def _problem_members(problem: Problem) -> dict[str, Any]:
    return {**msgspec.to_builtins(problem), "remedy": _REMEDIES[problem.code]}


def _members(value: object) -> Any:
    """Return a value of a report as JSON; spans of places in the rules have their line and column."""
    match value:
        case Span(text, tone, place):
            of_rules = {} if place is None or place.file != RULES_FILE else {"line": place.line, "column": place.column}
            return {"text": _members(text), "tone": tone.value, **of_rules}
        case str():
            return truncate(escape_controls(value), MAX_TEXT)
        case tuple() | list():
            return [*map(_members, value)]
        case _ if is_dataclass(value):
            return {field.name: _members(getattr(value, field.name)) for field in fields(value)}
    return value


def _rule_test(explanations: Iterable[Explanation]) -> dict[str, Json]:
    """Return a RuleTest that expects these decisions."""
    titles: dict[str, int] = {}
    cases: list[Json] = []
    for explanation in explanations:
        number = titles[explanation.title] = titles.get(explanation.title, 0) + 1
        name = explanation.title if number == 1 else f"{explanation.title} {number}"
        admission = explanation.admission
        expect: dict[str, Json] = {"allowed": admission.allowed}
        if admission.warnings:
            expect["warnings"] = [*admission.warnings]
        expect |= {"pod": explanation.changed} if admission.allowed else {"message": admission.message}
        request: Json = {"namespace": explanation.answer.namespace}
        cases.append({"name": name, "request": request, "pod": explanation.written, "expect": expect})
    return {
        "apiVersion": "gpurules.io/v1",
        "kind": "RuleTest",
        "metadata": {"name": "playground"},
        "spec": {"rules": [RULES_FILE], "cluster": {"file": CLUSTER_FILE}, "cases": cases},
    }
