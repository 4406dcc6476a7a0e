"""Parts that the mutations of all rules share: the containers as records, the applicability of a rule, failures."""

import re
from collections.abc import Iterable

from rules_engine.language.cel import Program
from rules_engine.model.kubernetes.kept_fields import keeps_path
from rules_engine.model.rules.rule import SKIP_ANNOTATION, FailurePolicy, Rule
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from rules_engine.rules.evaluation.rule_reads import fields_read_by
from rules_engine.rules.native.cel_text import cel_literal, label_condition
from rules_engine.rules.native.expressions import RECORDED_AMOUNTS, Expressions, match_operands
from rules_engine.rules.native.policy import NativeCheck, PolicyScope, Variable
from rules_engine.rules.rule_set.compiled import CompiledRule
from rules_engine.rules.rule_set.globs import matches_any


def _records(member: str, containers: str, ends: str) -> str:
    init = str(member == "initContainers").lower()
    return f"""{containers}.transformList(i, c,
  has(c.resources) && (has(c.resources.limits) || has(c.resources.requests)),
  {{'path': dyn('/spec/{member}/' + string(i) + '/resources/'), 'name': dyn(c.name),
    'init': dyn({init}), 'ends': dyn({ends}),
    'limits': c.?resources.limits.orValue({{}}), 'requests': c.?resources.requests.orValue({{}})}})"""


_INIT_CONTAINERS = _records(
    "initContainers", "object.spec.?initContainers.orValue([])", "c.?restartPolicy.orValue('') != 'Always'"
)

SHARED_VARIABLES = (
    Variable(
        "containers",
        "// Containers with amounts, in the order in which they start; 'ends': before the next one starts.\n"
        f"{_INIT_CONTAINERS} +\n{_records('containers', 'object.spec.containers', 'false')}",
    ),
    Variable(
        "points",
        "// When most may be in use: while each init container runs, and in the end.\n"
        "lists.range(variables.containers.size() + 1).filter(i,\n"
        "  i == variables.containers.size() || variables.containers[i].ends)",
    ),
)
"""The containers of a pod that name a resource, and the moments at which the scheduler adds up their requests.

Source: k8s.io/component-helpers/resource (AggregateContainerRequests)."""

HAS_SKIP = f"{cel_literal(SKIP_ANNOTATION)} in object.metadata.?annotations.orValue({{}})"

DISPLAY = "request.namespace + '/' + object.metadata.?name.orValue(object.metadata.?generateName.orValue(''))"
"""The pod's name in messages."""


class Draft:
    """The variables of one rule so far. In a template, $name stands for another variable of the rule."""

    def __init__(self, compiled: CompiledRule[Rule], scope: PolicyScope) -> None:
        """Begin with the variables of the rule's author, and `applies`."""
        rule, self.expressions, self._prefix = compiled.rule, Expressions(compiled, scope.prefix), scope.prefix
        self._list = [*self.expressions.variables()]
        selected = [label_condition(each, "namespaceObject") for each in rule.match.namespace_selector.requirements]
        operands = match_operands(rule, RECORDED_AMOUNTS)
        self.define_literal("applies", join_operands([*operands, *selected, *self.expressions.conditions()]))

    @property
    def variables(self) -> tuple[Variable, ...]:
        return tuple(self._list)

    def text(self, template: str) -> str:
        """Return a template, which has no text of the author, with the full names of variables."""
        return re.sub(r"\$(\w+)", rf"variables.{self._prefix}\1", template)

    def define(self, name: str, template: str) -> None:
        self.define_literal(name, self.text(template))

    def define_literal(self, name: str, expression: str) -> None:
        self._list.append(Variable(f"{self._prefix}{name}", expression))


def skip_warning(rule: Rule, draft: Draft, applies: str) -> NativeCheck:
    """Return the warning of a skip annotation without effect, for a pod to which a rule applies."""
    key = cel_literal(SKIP_ANNOTATION)
    forbidden = f"{rule.id} cannot be skipped by the annotation {SKIP_ANNOTATION}"
    ineffective = f'the annotation {SKIP_ANNOTATION} has no effect: its value must be "true"'
    texts = f"{cel_literal(forbidden)} : {cel_literal(ineffective)}"
    return NativeCheck(
        expression=draft.text(f"!({applies})") + f" || !({HAS_SKIP})",
        message=ineffective,
        message_expression=f"object.metadata.annotations[{key}] == 'true' ? {texts}",
    )


def join_operands(operands: Iterable[str]) -> str:
    return " &&\n".join(operands) or "true"


def requested(resource: str) -> str:
    """Return the condition that some container has an amount of a resource that is not 0."""
    return (
        "variables.containers.exists(c, [c.limits, c.requests].exists(a, "
        f"sign(quantity(a[?{resource}].orValue('0'))) != 0))"
    )


def malformed(resource: str) -> str:
    """Return the condition that the API server will refuse an amount of a container `c`."""
    own = f"quantity(c.limits[?{resource}].or(c.requests[?{resource}]).orValue('0'))"
    return f"""!{own}.isInteger() || sign({own}) < 0 ||
  {resource} in c.limits && {resource} in c.requests &&
  quantity(c.limits[{resource}]).compareTo(quantity(c.requests[{resource}])) != 0"""


def too_many(rule: Rule, scope: PolicyScope) -> str:
    """Return the condition for a pod with too many containers: it fails, or is false for Ignore.

    CEL has no function that fails: the conversion of a text shows the text.
    """
    if scope.strict and rule.failure_policy is FailurePolicy.IGNORE:
        return "false"
    return (
        f"int(string(variables.containers.size()) + ' containers and init containers, more than {MAX_CONTAINERS}') > 0"
    )


def reads_changes(
    compiled: CompiledRule[Rule], programs: Iterable[Program] | None = None, annotations: Iterable[str] | None = None
) -> bool:
    """Return True if a rule reads members of a pod that rules change: by expressions, or by resources that it matches.

    Every pod that requests a resource of the rule has a match of resources that names all of them. `programs`: its
    expressions, by default all. `annotations`: names of annotations that change, by default any.
    """
    matched_resources = compiled.rule.match.resources
    if matched_resources and not all(
        matches_any(matched_resources, each) for each in compiled.rule.interests.resources or ()
    ):
        return True
    read = fields_read_by(compiled, compiled.programs if programs is None else programs)
    keys = [()] if annotations is None else [(key,) for key in annotations]
    places = [*(("metadata", "annotations", *key) for key in keys), ("spec", "containers"), ("spec", "initContainers")]
    return any(keeps_path(read, "object", *place) for place in places)


def patch(op: str, path: str, value: str = "") -> str:
    """Return an operation of JSON Patch; `path` and `value` are expressions."""
    return f"JSONPatch{{op: '{op}', path: {path}{f', value: {value}' if value else ''}}}"


def escape_key(name: str) -> str:
    """Return a name as a reference token of a JSON Pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")
