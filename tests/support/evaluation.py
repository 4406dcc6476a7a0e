"""Builders of pods, nodes, rules and requests, and checks of decisions."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rules_engine.language.files import SourceFile
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Node
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.problems.source import Location, SourceText
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.rules.decision import Decision
from rules_engine.model.rules.rule import NamedExpression, Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.injection.value import GPU_TYPE_ANNOTATION, InjectionEntry, ResourceInjection
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.ladder.value import FallbackLadder, Rung
from rules_engine.rules.pod_members.value import FIELDS, Member
from rules_engine.rules.pod_members.writing import identity_of
from rules_engine.rules.sources.load import load_texts
from rules_engine.rules.validation.value import Check, Validation
from tests.support.patching import apply_as_api_server, apply_strictly, resolve, same

HERE = Location("rules.yaml", 1, 1)

MIG3 = "nvidia.com/mig-3g.40gb"
HCA = "rdma/hca"
MIG2 = "nvidia.com/mig-2g.20gb"
MIG1 = "nvidia.com/mig-1g.10gb"
GPU = "nvidia.com/gpu"

Amounts = Mapping[str, Any]


def container(
    name: str = "main",
    both: Amounts | None = None,
    *,
    limits: Amounts | None = None,
    requests: Amounts | None = None,
    sidecar: bool = False,
) -> dict[str, Json]:
    """Return a container; `both` sets limits and requests. An empty section is omitted."""
    sections = {"limits": {**(both or {}), **(limits or {})}, "requests": {**(both or {}), **(requests or {})}}
    resources: dict[str, Json] = {key: _json(amounts) for key, amounts in sections.items() if amounts}
    made: dict[str, Json] = {"name": name, "image": "img"}
    if resources:
        made["resources"] = resources
    if sidecar:
        made["restartPolicy"] = "Always"
    return made


def rung_place(
    tolerations: Sequence[Toleration] = (), annotations: Mapping[str, str] | None = None, runtime_class_name: str = ""
) -> tuple[Member, ...]:
    """Return the members of a rung's `place`."""
    parts = ("key", "operator", "value", "effect")
    items = [{part: text for part in parts if (text := getattr(each, part))} for each in tolerations]
    named: dict[str, list[tuple[str, Any]]] = {
        "runtimeClassName": [("", runtime_class_name)] if runtime_class_name else []
    }
    named |= {"annotations": [*(annotations or {}).items()]}
    named |= {"runtimeClassName": [("", runtime_class_name)] if runtime_class_name else []}
    named |= {"tolerations": [(identity_of(FIELDS["tolerations"], item), item) for item in items]}
    return tuple(
        Member(field=FIELDS[field], name=name, value=value, location=HERE)
        for field, members in named.items()
        for name, value in members
    )


def _json(amounts: Amounts) -> dict[str, Json]:
    return {
        name: amount if amount is None or isinstance(amount, bool) else str(amount) for name, amount in amounts.items()
    }


def pod(
    *containers: dict[str, Json],
    init: Sequence[dict[str, Json]] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    name: str = "job",
    **spec: Any,
) -> dict[str, Json]:
    """Return a Pod; annotations and labels are absent unless given."""
    metadata: dict[str, Json] = {"name": name}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if labels is not None:
        metadata["labels"] = dict(labels)
    made: dict[str, Json] = {"containers": list(containers), **spec}
    if init:
        made["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def asks(both: Amounts, **rest: Any) -> dict[str, Json]:
    """Return a pod whose one container has these requests and limits."""
    return pod(container("main", both), **rest)


def limited(amounts: Amounts | None = None, image: str = "app:1") -> dict[str, Any]:
    """Return a pod of one container with these limits, in JSON as they are."""
    resources: dict[str, Json] = {} if amounts is None else {"limits": dict(amounts)}
    return pod({"name": "main", "image": image, "resources": resources}, name="p")


def node(name: str = "node", allocatable: Amounts | None = None, used: Amounts | None = None, **fields: Any) -> Node:
    return Node(name=name, allocatable=quantities(allocatable), used=quantities(used), **fields)


def cluster(*nodes: Node | Amounts, **fields: Any) -> Cluster:
    """Return a cluster of these nodes; a mapping stands for a node with these allocatable resources."""
    made = [item if isinstance(item, Node) else node(f"node-{index}", item) for index, item in enumerate(nodes)]
    return Cluster(nodes=tuple(made), **fields)


def quantities(amounts: Amounts | None) -> dict[str, Quantity]:
    return {name: Quantity.parse(str(amount)) for name, amount in (amounts or {}).items()}


def rung(resource: str, when: str | None = None, **fields: Any) -> Rung:
    return Rung(resource=resource, location=HERE, when=None if when is None else cel(when), **fields)


def ladder(*rungs: str | Rung, name: str = "ladder", **fields: Any) -> FallbackLadder:
    made = tuple(item if isinstance(item, Rung) else rung(item) for item in rungs)
    return FallbackLadder(name=name, location=HERE, rungs=made, **common(fields))


def entry(coefficients: Amounts | None = None, annotations: Mapping[str, str] | None = None) -> InjectionEntry:
    return InjectionEntry(location=HERE, coefficients=quantities(coefficients), annotations=annotations or {})


def injection(
    coefficients: Amounts | None = None,
    *,
    name: str = "injection",
    gpu_type: str | None = "V100",
    gpu_type_annotation: str = GPU_TYPE_ANNOTATION,
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> ResourceInjection:
    default = entry(coefficients, annotations)
    return ResourceInjection(
        name=name,
        location=HERE,
        default=default,
        gpu_type=gpu_type,
        gpu_type_annotation=gpu_type_annotation if gpu_type is not None else "",
        **common(fields),
    )


def pod_defaults(spec: str, name: str = "defaults") -> Rule:
    """Return PodDefaults with a spec in flow style."""
    text = f"{{apiVersion: gpurules.io/v1, kind: PodDefaults, metadata: {{name: {name}}}, spec: {spec}}}"
    loaded = load_texts([SourceFile("x.yaml", text)])
    assert not loaded.problems, loaded.problems
    return loaded.rules[0]


def check(expression: str, message: str = "", message_expression: str | None = None, **fields: Any) -> Check:
    made = None if message_expression is None else cel(message_expression)
    return Check(expression=cel(expression), location=HERE, message=message, message_expression=made, **fields)


def validation(*checks: Check | str, name: str = "validation", **fields: Any) -> Validation:
    made = tuple(item if isinstance(item, Check) else check(item) for item in checks)
    return Validation(name=name, location=HERE, validations=made, **common(fields))


def common(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of a rule, with `variables` and `match_conditions` converted from {name: expression}."""
    made = dict(fields)
    for key in ("variables", "match_conditions"):
        if key in made:
            made[key] = tuple(NamedExpression(name, cel(text)) for name, text in made[key].items())
    return made


def cel(text: str) -> SourceText:
    return SourceText.inline(text)


def compiled(*rules: Rule) -> RuleSet:
    """Compile rules. Asserts that they have no problems but for conditions that read amounts."""
    rule_set, found = compile_rules(rules)
    problems = [str(problem) for problem in found if problem.code != "condition-reads-amounts"]
    assert not problems, problems
    return rule_set


def request(made: Json, *, namespace: str = "ml", operation: str = "CREATE", **fields: Any) -> AdmissionRequest:
    """Return a request for a pod; `fields` replace those of the value."""
    return replace(pod_request(made, uid="0", namespace=namespace, operation=operation), **fields)


def mutated(made: Json, *rules: Rule, on: Cluster = cluster(), **fields: Any) -> Decision:  # noqa: B008 - immutable
    """Return the decision of /mutate on a pod, with a checked patch."""
    return sound(made, lambda: compiled(*rules).mutate(request(made, **fields), on))


def validated(made: Json, *rules: Rule, on: Cluster = cluster(), **fields: Any) -> Decision:  # noqa: B008 - immutable
    """Return the decision of /validate on a pod, with a checked patch."""
    return sound(made, lambda: compiled(*rules).validate(request(made, **fields), on))


def sound(made: Json, decide: Callable[[], Decision]) -> Decision:
    """Return a decision. Asserts that it does not modify the pod, and that its patch is minimal and correct."""
    before = copy.deepcopy(made)
    decision = decide()
    assert same(made, before), "the incoming object was modified"
    assert same(apply_strictly(made, decision.patch), decision.result)
    assert same(apply_as_api_server(made, decision.patch), decision.result)
    assert_minimal(made, decision)
    if not decision.allowed:
        assert decision.patch == ()
    return decision


def assert_minimal(made: Json, decision: Decision) -> None:
    """Assert that each operation changes a value, and that no path occurs twice or inside another.

    Items may be appended to one list.
    """
    appended = [operation for operation in decision.patch if operation.path.endswith("/-")]
    assert all(operation.op == "add" for operation in appended)
    operations = [operation for operation in decision.patch if operation not in appended]
    paths = [operation.path for operation in operations]
    assert not any(left != right and f"{right}/".startswith(f"{left}/") for left in paths for right in paths)
    assert len(set(paths)) == len(paths)
    for operation in operations:
        try:
            present = resolve(made, operation.path)
        except KeyError:
            assert operation.op == "add"
            continue
        assert operation.op == "remove" or not same(present, operation.value)
        assert (operation.op == "add") == (present is None)


def resources(decision: Decision, name: str = "main") -> dict[str, dict[str, str]]:
    """Return the resources of a regular or init container in the result."""
    result: Any = decision.result
    spec = result["spec"]
    everybody = [*spec.get("containers", []), *spec.get("initContainers", [])]
    found: dict[str, dict[str, str]] = next(c.get("resources", {}) for c in everybody if c["name"] == name)
    return found


def annotations(decision: Decision) -> dict[str, str]:
    result: Any = decision.result
    found: dict[str, str] = result["metadata"].get("annotations", {})
    return found
