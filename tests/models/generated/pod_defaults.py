"""PodDefaults and pods for the model of PodDefaults, and the comparison of its outcome with the engine's."""

import copy
import json
from functools import reduce
from typing import Any

from hypothesis import strategies as st

from rules_engine.cluster.creation.plugins import ApiServer
from rules_engine.language.files import SourceFile
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.kubernetes.cluster import Classes, ClassScheduling, Cluster, Freshness
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.problem import Severity
from rules_engine.model.rules.decision import EVALUATION_ERROR, Decision
from rules_engine.model.rules.rule import Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.sources.load import load_texts
from tests.models import injections as injection_model
from tests.models import ladders as ladder_model
from tests.models import pod_defaults as model
from tests.models.generated import injections, ladders
from tests.support.api import api_object
from tests.support.evaluation import container, pod, request
from tests.support.patching import apply_rfc_6902, same

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
NAMESPACES: dict[str, dict[str, str]] = {
    "research": {"team": "research"},
    "prod": {"team": "prod", "tier": "gpu"},
    "web": {},
}
CLASSES = ("gpu-low", "gpu-high", "standard")
TYPE = injections.TYPE

# Labels and annotations that rules write are not those that they read.
WRITTEN_LABELS, WRITTEN_ANNOTATIONS = ("cost", "gpu"), ("owner", "example.com/gpu")
SELECTORS = ("pool", "zone")
STRINGS = (
    "string(requested('nvidia.com/gpu') * 8) + 'Gi'",
    "namespaceObject.metadata.?labels[?'team'].orValue('none')",
    "namespaceObject.metadata.name",
    "params.pool",
    "params.classes[namespaceObject.metadata.name]",
    "variables.team",
    "object.metadata.labels['app']",
    "object.metadata.?annotations[?'note'].orValue('hello world')",
    "'n' + string(requested('nvidia.com/mig-1g.10gb'))",
    "string(requested('cpu'))",
)
SIZES = (STRINGS[0], STRINGS[0], "object.metadata.annotations['size']", "string(requested('memory') / 1048576) + 'Mi'")
CONDITIONS = (
    "object.metadata.labels['app'] == 'train'",
    "namespaceObject.metadata.?labels[?'team'].orValue('none') == 'research'",
    "variables.team == 'research'",
    "'note' in object.metadata.?annotations.orValue({})",
)
PARAMS = {"pool": "gpu-a", "classes": {"research": "gpu-low", "prod": "standard"}}

TOLERATIONS: tuple[dict[str, Any], ...] = (
    {"key": "gpu", "operator": "Exists"},
    {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
    {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    {"key": "gpu", "operator": "Equal", "value": "gpu-a", "effect": "NoSchedule"},
    {"key": "spot"},
    {"key": "spot", "operator": "Equal", "value": ""},
    {"operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
)
COMPUTED_TOLERATIONS = (
    {"key": "gpu", "valueExpression": "params.pool", "effect": "NoSchedule"},
    {"key": "team", "operator": "Equal", "valueExpression": STRINGS[1], "effect": "NoSchedule"},
)


def _claimed(storage: str, **members: str) -> Any:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}, **members}
    return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


VOLUMES: tuple[dict[str, Any], ...] = (
    {"name": "shm", "emptyDir": {"medium": "Memory"}},
    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
    {"name": "shm", "emptyDir": {}},
    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
    {"name": "models", "hostPath": {"path": "/srv/models"}},
    {"name": "models", "hostPath": {"path": "/srv/models", "type": "Directory"}},
    {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": False}},
    {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
    {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
    {"name": "models", "image": {"reference": "registry/models:1"}},
    {"name": "models", "image": {"reference": "registry/models:1", "pullPolicy": "Always"}},
    {"name": "models", **_claimed("1Gi")},
    {"name": "cfg", "configMap": {"name": "cfg"}},
    {"name": "cfg", "configMap": {"name": "cfg", "defaultMode": 420}},
    {"name": "cfg", "configMap": {"name": "cfg", "defaultMode": 256}},
    {"name": "cfg", "secret": {"secretName": "cfg", "items": [{"key": "a", "path": "a"}]}},
    {"name": "cfg", "projected": {"sources": [{"configMap": {"name": "cfg"}}]}},
    {"name": "cfg", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    {"name": "cfg", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}},
)
POD_VOLUMES: tuple[dict[str, Any], ...] = (
    *VOLUMES,
    {"name": "models", "hostPath": {"path": "/srv/models", "type": ""}},
    {"name": "models", "image": {"reference": "registry/models:1", "pullPolicy": "IfNotPresent"}},
    {"name": "models", **_claimed("1024Mi", volumeMode="Filesystem")},
    {"name": "shm", "emptyDir": {"medium": "", "sizeLimit": None}},
    {"name": "data", "emptyDir": {}},
    {"name": "shm"},
    {
        "name": "cfg",
        "projected": {
            "defaultMode": 420,
            "sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}],
        },
    },
    {
        "name": "cfg",
        "downwardAPI": {
            "defaultMode": 420,
            "items": [{"path": "a", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}],
        },
    },
)
MOUNTS: tuple[dict[str, Any], ...] = (
    {"name": "shm", "mountPath": "/dev/shm"},
    {"name": "shm", "mountPath": "/dev/shm/"},
    {"name": "models", "mountPath": "/models"},
    {"name": "models", "mountPath": "/models", "readOnly": False},
    {"name": "models", "mountPath": "/models", "readOnly": True},
    {"name": "models", "mountPath": "/models", "subPath": "a"},
    {"name": "models", "mountPath": "/more"},
    {"name": "cfg", "mountPath": "/etc/cfg", "readOnly": True},
    {"name": "data", "mountPath": "/data"},
)
POD_MOUNTS: tuple[dict[str, Any], ...] = (
    *MOUNTS,
    {"name": "data", "mountPath": "/dev/shm"},
    {"name": "models", "mountPath": "/models/", "subPath": ""},
    {"name": "shm", "mountPath": "/cache"},
)
ENV: tuple[dict[str, Any], ...] = (
    {"name": "NCCL", "value": "eth0"},
    {"name": "NCCL", "value": "ib0"},
    {"name": "VOID", "value": "void"},
    {"name": "VOID", "value": ""},
    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    {"name": "NODE", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    {"name": "NODE", "value": "a"},
)
POD_ENV: tuple[dict[str, Any], ...] = (
    *ENV,
    {"name": "VOID"},
    {"name": "OTHER", "value": "$(NCCL)"},
    {"name": "NODE", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
)


WHICH = ("Requesting", "NotRequesting", "All", {"names": ["c0"]}, {"names": ["c1", "i0"]})


def rarely(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 5 * len(others) + [*others])


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


# Rules


@st.composite
def documents(draw: st.DrawFn, most: int = 5) -> Any:
    """Generate PodDefaults."""
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=most, unique=True))
    members = {"apiVersion": "gpurules.io/v1", "kind": "PodDefaults"}
    return [{**members, "metadata": {"name": name}, "spec": draw(_specs())} for name in names]


def _without_injected(documents: Any) -> Any:
    """Return rules that do not count what injections give."""
    texts = (SIZES[-1], STRINGS[0]), (STRINGS[-1], STRINGS[-2])
    return json.loads(reduce(lambda text, pair: text.replace(*pair), texts, json.dumps(documents)))


@st.composite
def _specs(draw: st.DrawFn) -> Any:
    spec: dict[str, Any] = {
        "priority": draw(st.integers(0, 2)),
        "mode": draw(rarely("Enforce", "Audit", "Off")),
        "match": draw(_matches()),
        "onConflict": draw(some("Keep", "Overwrite")),
        "optOut": draw(some("Allowed", "Allowed", "Forbidden")),
        "failurePolicy": draw(some("Fail", "Ignore", "Ignore")),
        "params": PARAMS,
        "variables": [{"name": "team", "expression": "object.metadata.labels['team']"}],
        "matchConditions": [
            {"name": f"c{index}", "expression": text}
            for index, text in enumerate(draw(rarely([], *([text] for text in CONDITIONS), [*CONDITIONS[:3]])))
        ],
        **draw(_entries()),
    }
    own = draw(st.dictionaries(some(*NAMESPACES), _namespace_entries(), max_size=2))
    if own or not {"pod", "containers"} & spec.keys():
        spec["namespaces"] = own or {"web": {}}
    return _without_defaults(draw, spec)


def _without_defaults(draw: st.DrawFn, spec: dict[str, Any]) -> Any:
    """Return a spec that leaves out what nothing needs, now and then."""
    defaults = {
        "priority": 0,
        "mode": "Enforce",
        "onConflict": "Keep",
        "optOut": "Allowed",
        "failurePolicy": "Fail",
        "match": {},
        "matchConditions": [],
    }
    texts = json.dumps(spec)
    unused = {name for name, text in (("params", "params."), ("variables", "variables.")) if text not in texts}
    leaves_out = draw(st.booleans())
    return {
        key: value
        for key, value in spec.items()
        if key not in unused and not (leaves_out and key in defaults and defaults[key] == value)
    }


@st.composite
def _matches(draw: st.DrawFn) -> Any:
    match: dict[str, Any] = {}
    if globs := draw(rarely([], ["research"], ["re*", "w?b"], ["*"], ["none"])):
        match["namespaces"] = globs
    if globs := draw(rarely([], ["prod"], ["*e*"])):
        match["excludeNamespaces"] = globs
    if selector := draw(
        rarely(
            {},
            {"matchLabels": {"app": "train"}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["train"]}]},
            {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        )
    ):
        match["objectSelector"] = selector
    if globs := draw(some([], [], ["nvidia.com/*"], [GPU], ["*/mig-?g.*"], ["amd.com/gpu", MIG], [GPU, "rdma/hca"])):
        match["resources"] = globs
    if selector := draw(rarely({}, {"matchLabels": {"tier": "gpu"}})):
        match["namespaceSelector"] = selector
    return match


@st.composite
def _entries(draw: st.DrawFn) -> Any:
    """Generate what a rule adds: `pod` and `containers`, each now and then."""
    entry: dict[str, Any] = {}
    made = {"metadata": draw(_metadata()), "spec": draw(_pod_specs())}
    made = {key: value for key, value in made.items() if value}
    if made:
        entry["pod"] = made
    once = (lambda item: str(item["which"])) if draw(st.integers(0, 5)) else id
    items = draw(st.lists(_container_items(), max_size=3, unique_by=once))
    if items := [item for item in items if len(item) > 1]:
        entry["containers"] = items
    return entry


@st.composite
def _namespace_entries(draw: st.DrawFn) -> Any:
    entry = draw(some({}, {"inherit": "Merge"}, {"inherit": "Merge"}, {"plain": ""}))
    if not entry:
        return {}
    return {**({} if "plain" in entry else entry), **draw(_entries())}


def _maps(keys: tuple[str, ...], texts: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(keys), st.sampled_from(texts), max_size=2)


@st.composite
def _two_forms(draw: st.DrawFn, name: str, keys: tuple[str, ...], texts: tuple[str, ...]) -> Any:
    """Generate a map, whose values are plain or computed."""
    plain = draw(rarely({}, {}) if draw(st.booleans()) else _maps(keys, texts))
    computed = draw(_maps(keys, STRINGS)) if draw(st.integers(0, 3)) == 0 else {}
    members = {name: plain, f"{name}Expression": {k: v for k, v in computed.items() if k not in plain}}
    return {key: value for key, value in members.items() if value}


@st.composite
def _metadata(draw: st.DrawFn) -> Any:
    return {
        **draw(_two_forms("labels", WRITTEN_LABELS, ("a", "b", ""))),
        **draw(_two_forms("annotations", (*WRITTEN_ANNOTATIONS, TYPE), ("V100", "T4", "two words", ""))),
    }


@st.composite
def _scalars(draw: st.DrawFn, name: str, *values: str) -> Any:
    return draw(
        some(
            {},
            {},
            *({name: value} for value in values),
            {f"{name}Expression": draw(some(*STRINGS))} if draw(st.booleans()) else {},
        )
    )


@st.composite
def _pod_specs(draw: st.DrawFn) -> Any:
    spec: dict[str, Any] = {
        **draw(_two_forms("nodeSelector", SELECTORS, ("a", "b"))),
        **draw(_scalars("runtimeClassName", "nvidia", "kata")),
        **draw(_scalars("priorityClassName", *CLASSES)),
        **draw(_scalars("schedulerName", "volcano", "default-scheduler")),
    }
    tolerations = st.lists(st.sampled_from([*TOLERATIONS, *COMPUTED_TOLERATIONS]), max_size=3)
    secrets = st.lists(some({"name": "hub"}, {"name": "regcred"}), max_size=2, unique_by=lambda item: item["name"])
    computed: dict[str, Any] = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimitExpression": SIZES[0]}}
    computed["emptyDir"]["sizeLimitExpression"] = draw(some(*SIZES))
    volumes = st.lists(
        some(*VOLUMES, computed, computed, computed), max_size=3, unique_by=lambda item: str(item["name"])
    )
    for name, items in (("tolerations", tolerations), ("imagePullSecrets", secrets), ("volumes", volumes)):
        if draw(st.booleans()) and (found := draw(items)):
            spec[name] = _unique(found)
    return spec


def _unique(items: list[Any]) -> list[Any]:
    return [item for index, item in enumerate(items) if item not in items[:index]]


@st.composite
def _container_items(draw: st.DrawFn) -> Any:
    which = draw(some(*WHICH))
    item: dict[str, Any] = {"which": which}
    computed = st.builds(
        lambda name, text: {"name": name, "valueExpression": text}, some("VOID", "NCCL"), some(*STRINGS)
    )
    variables = draw(
        st.lists(
            st.sampled_from(ENV) if draw(st.integers(0, 3)) else computed,
            max_size=3,
            unique_by=lambda each: each["name"],
        )
    )
    mounts = draw(st.lists(st.sampled_from(MOUNTS), max_size=3, unique_by=model.path_of))
    if variables:
        item["env"] = variables
    if mounts:
        item["volumeMounts"] = mounts
    return item


# Pods


@st.composite
def pods(draw: st.DrawFn) -> Any:
    """Generate a pod that clashes with what rules add."""
    made: Any = pod(
        *[draw(_containers(f"c{index}", False)) for index in range(draw(st.integers(1, 3)))],
        init=[draw(_containers(f"i{index}", True)) for index in range(draw(some(0, 0, 1, 2)))],
    )
    return draw(clashes(made))


@st.composite
def _containers(draw: st.DrawFn, name: str, init: bool) -> Any:
    sections: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for resource in draw(some((), (), (GPU,), (GPU,), (MIG,), (GPU, MIG), ("amd.com/gpu",), ("rdma/hca",), ("cpu",))):
        count = draw(some("1", "2", "8", "0", "2000m", "1k") if resource != "cpu" else some("500m", "2", "1500m"))
        for section in draw(some(("limits", "requests"), ("limits",), ("requests",))):
            sections[section][resource] = count
    for section in draw(rarely((), ("limits",), ("requests",), ("limits", "requests"))):
        sections[section]["memory"] = draw(some("1Gi", "1500M", "1"))
    return container(name, **sections, sidecar=init and draw(st.booleans()))


def _optional(**values: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(each) for key, each in values.items()})


@st.composite
def clashes(draw: st.DrawFn, made: Any, *, nulls: bool = True) -> Any:
    """Add to a pod what rules add, too: equal, different, null or empty."""
    made = copy.deepcopy(made)
    metadata, spec = made["metadata"], made["spec"]
    labels: dict[str, Any] = draw(
        _optional(app=("train", "serve", "Team_A"), team=("research", "prod"), cost=("a", "b"), gpu=("a", ""))
    )
    annotations: dict[str, Any] = draw(
        _optional(size=("1Gi", "16Gi", "big"), note=("x", "a b"), owner=("V100", "me"), **{TYPE: ("V100", "T4")})
    )
    if draw(st.integers(0, 9)) == 0:
        annotations["gpurules.io/skip"] = draw(some("true", "True"))
    nothing: tuple[Any, ...] = (None,) if nulls else ()
    labels = {**labels, **metadata.get("labels", {})}
    if draw(st.booleans()) or labels:
        metadata["labels"] = labels or draw(some({}, *nothing))
    annotations = {**annotations, **metadata.get("annotations", {})}
    if draw(st.booleans()) or annotations:
        metadata["annotations"] = annotations or draw(some({}, *nothing))
    if draw(st.booleans()):
        metadata["namespace"] = "research"
    selector = draw(_optional(pool=("a", "b"), zone=("a", "b")))
    if selector or draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {**selector, **spec.get("nodeSelector", {})} or draw(some({}, *nothing))
    for name, values in (
        ("runtimeClassName", ("nvidia", "kata", "", *nothing)),
        ("schedulerName", ("volcano", "default-scheduler", "default-scheduler", "", *nothing)),
        ("priorityClassName", ("gpu-low", "standard", "standard", "batch", "", *nothing)),
        ("priority", (0, 0, 1000)),
        ("preemptionPolicy", ("PreemptLowerPriority", "Never")),
    ):
        if draw(st.integers(0, 2)) == 0:
            spec[name] = draw(some(*values))
    for name, choices, most in (
        ("tolerations", TOLERATIONS, 3),
        ("imagePullSecrets", ({"name": "hub"}, {"name": "own"}), 1),
        ("volumes", POD_VOLUMES, 3),
    ):
        if draw(st.booleans()):
            key = str if name == "tolerations" else (lambda item: str(item["name"]))
            present = draw(st.lists(st.sampled_from(choices), max_size=most, unique_by=key))
            spec[name] = [*spec.get(name, []), *copy.deepcopy(present)] or draw(some([], *nothing))
    for item in [*spec["containers"], *spec.get("initContainers", [])]:
        if draw(st.booleans()):
            item["env"] = copy.deepcopy(draw(st.lists(st.sampled_from(POD_ENV), max_size=3))) or draw(
                some([], *nothing)
            )
            if draw(st.integers(0, 9)):
                names = [each["name"] for each in item["env"] or ()]
                item["env"] = item["env"] and [
                    each for index, each in enumerate(item["env"]) if each["name"] not in names[:index]
                ]
        if draw(st.booleans()):
            mounts = draw(st.lists(st.sampled_from(POD_MOUNTS), max_size=3, unique_by=model.path_of))
            item["volumeMounts"] = copy.deepcopy(mounts) or draw(some([], *nothing))
    present = model.items(spec, "volumes")
    mounted = {mount["name"] for _, mount in model.all_mounts(made)} - {volume["name"] for volume in present}
    if mounted:
        lacking = [[each for each in POD_VOLUMES if each["name"] == name] for name in sorted(mounted)]
        spec["volumes"] = [*present, *(copy.deepcopy(draw(some(*found))) for found in lacking)]
    return made


@st.composite
def worlds(draw: st.DrawFn) -> model.World:
    namespace = draw(some(*NAMESPACES))
    return model.World(
        namespace=namespace,
        labels=draw(rarely(NAMESPACES[namespace], None)),
        default_classes=draw(some(frozenset(), frozenset({"standard"}), frozenset({"standard", "batch"}), None)),
        runtime_classes={
            "kata": {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
        },
    )


def cases() -> st.SearchStrategy[Any]:
    """Return a strategy of rules, a pod and a cluster."""
    return own_cases() | whole_cases() | placed_cases()


@st.composite
def own_cases(draw: st.DrawFn) -> Any:
    """Generate PodDefaults, a pod and a cluster."""
    world = draw(worlds())
    made = draw(pods())
    if made["metadata"].get("namespace"):
        made["metadata"]["namespace"] = world.namespace
    rules = draw(documents())
    if "object.metadata.?annotations" in json.dumps(rules) and not made["metadata"].get("annotations"):
        # In expressions null is not absent. The API server sends no null.
        made["metadata"].pop("annotations", None)
    return {"rules": rules, "pod": made, "world": world}


# Sets of all mutating kinds


@st.composite
def whole_cases(draw: st.DrawFn) -> Any:
    """Generate ladders, PodDefaults and injections, a pod and a cluster with nodes."""
    world = draw(worlds())
    pools = draw(st.integers(0, 2)) == 0
    case = draw(ladders.pool_cases() if pools else ladders.cases())
    made = draw(clashes(case["pod"], nulls=False))
    made["metadata"].pop("namespace", None)
    plain = [_plain_ladder(rule) for rule in case["rules"]]
    rules = _without_injected(draw(documents(most=3)))
    return {
        "ladders": plain,
        "rules": rules,
        "injections": draw(st.lists(_injections(world.namespace), max_size=2, unique_by=lambda rule: rule["name"])),
        "nodes": case["nodes"] and [_labelled(draw, node) for node in case["nodes"]],
        "pod": made,
        "world": world,
    }


@st.composite
def placed_cases(draw: st.DrawFn) -> Any:
    """Generate ladders that require nodes to match the pod, and PodDefaults that let it run on these nodes."""
    case = draw(whole_cases())
    names = draw(st.permutations(ladders.RESOURCES))[:3]
    others = [rule for rule in case["ladders"] if "pool" not in rule["rungs"][0]]
    rungs = [{"resource": name, "weight": 1, "when": "true", "assume": False} for name in names]
    rule = {
        **(others or [draw(ladders.rules().map(_plain_ladder))])[0],
        "rungs": rungs,
        "nodes": {"selector": {}, "require": ["MatchesPod"]},
        "mode": "Enforce",
        "matchConditions": [],
        "offered": "Allocatable",
    }
    second = draw(some({}, {draw(some(*names)): 1}))
    made = draw(clashes(pod(container("c0", {draw(some(*names)): 1}), container("c1", second)), nulls=False))
    for name, usual in (("tolerations", []), ("nodeSelector", {})):
        if draw(st.integers(0, 3)):
            made["spec"][name] = usual
    made["metadata"].pop("namespace", None)
    plain = {"labels": {}, "ready": True, "unschedulable": False, "used": {}}
    nodes = [
        {
            **_labelled(draw, {**plain, "taints": []}),
            "taints": draw(some(["gpu"], ["spot"], ["gpu", "spot"], [])),
            "allocatable": dict.fromkeys(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)), 2),
        }
        for _ in range(draw(st.integers(1, 4)))
    ]
    later = [] if draw(st.booleans()) else [{**rule, "name": "z", "rungs": draw(st.permutations(rungs))[:2]}]
    rules = [{**document, "spec": draw(_placing_specs(names))} for document in draw(documents(most=4))]
    return {**case, "ladders": [rule, *later], "rules": rules, "pod": made, "nodes": nodes}


@st.composite
def _placing_specs(draw: st.DrawFn, names: list[str]) -> Any:
    """Generate rules that decide on which nodes a pod may run."""
    members = st.fixed_dictionaries(
        {},
        optional={
            "tolerations": st.lists(
                st.sampled_from([TOLERATIONS[0], TOLERATIONS[2], {"key": "spot", "operator": "Exists"}]),
                min_size=1,
                max_size=2,
                unique_by=str,
            ),
            "nodeSelector": some({"pool": "a"}, {"pool": "b"}, {"zone": "a"}),
            "nodeSelectorExpression": some({"team": STRINGS[1]}),
            "runtimeClassName": some("kata", "nvidia"),
        },
    )
    return {
        "match": {"resources": draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))},
        "mode": draw(rarely("Enforce", "Audit")),
        "onConflict": draw(some("Keep", "Overwrite")),
        "pod": {"spec": draw(members.filter(bool))},
    }


def _injections(namespace: str) -> st.SearchStrategy[Any]:
    def adapted(rule: Any) -> Any:
        own = dict.fromkeys([namespace] if rule["namespaces"] else [], rule["namespaces"].get("ml"))
        return {**rule, "gpuResource": GPU, "gpuTypeAnnotation": TYPE, "namespaces": own}

    return injections.rules().map(adapted)


def _plain_ladder(rule: Any) -> Any:
    """Return a ladder whose expressions read nothing that PodDefaults write."""
    known = {"true", "false"}
    return {
        **rule,
        "matchConditions": [text for text in rule["matchConditions"] if text in known],
        "rungs": [{**rung, "when": rung["when"] if rung["when"] in known else "true"} for rung in rule["rungs"]],
    }


def _labelled(draw: st.DrawFn, node: Any) -> Any:
    return {
        **node,
        "labels": {
            **node["labels"],
            **draw(some({}, {}, {"runtime": "kata"}, {"zone": "a"}, {"pool": "b"}, {"team": "research"})),
        },
        "taints": draw(some(node["taints"], node["taints"], [], ["gpu"], ["spot"])),
    }


def expected_whole(case: Any) -> Any:
    """Return the model's result: (allowed, pod)."""
    rules, world = case["rules"], case["world"]
    placed = [
        {**rule, "placed": lambda made: model.placed(made, rules, world)}
        if "MatchesPod" in rule["nodes"]["require"]
        else rule
        for rule in case["ladders"]
    ]
    first = ladder_model.mutate(case["pod"], placed, case["nodes"])
    second = model.mutate(first.pod, rules, world)
    out = model.of(second.pod["metadata"], "annotations").get("gpurules.io/skip") == "true"
    third = injection_model.mutate(second.pod, [] if out else case["injections"], world.namespace)
    return first.allowed and second.allowed and third.allowed, third.pod


# Laws


def api_server(world: model.World) -> ApiServer:
    """Return the API server's own admission with the cluster of a case: classes, and a service account with secrets."""
    default = world.default_classes or frozenset()
    objects: dict[str, list[Any]] = {
        "PriorityClass": [
            api_object("PriorityClass", name, "", value=value, globalDefault=name in default)
            for value, name in enumerate((*CLASSES, "batch"), 1)
        ],
        "RuntimeClass": [
            api_object("RuntimeClass", "nvidia", "", handler="nvidia"),
            api_object(
                "RuntimeClass",
                "kata",
                "",
                handler="kata",
                overhead={"podFixed": {"cpu": "250m", "memory": "100Mi"}},
                scheduling=world.runtime_classes.get("kata", {}),
            ),
        ],
        "ServiceAccount": [
            api_object("ServiceAccount", "default", world.namespace, imagePullSecrets=[{"name": "hub"}, {"name": "x"}])
        ],
        "Namespace": [api_object("Namespace", world.namespace, "")],
    }
    return ApiServer(ClusterObjects(objects))


def value_at(made: Any, key: Any) -> Any:
    """Return what a pod has for a key that a rule may decide."""
    kind, *names = key if isinstance(key, tuple) else (key,)
    spec = made["spec"]
    match kind:
        case "labels" | "annotations":
            return model.of(made["metadata"], kind).get(names[0])
        case "nodeSelector":
            return model.of(spec, kind).get(names[0])
        case "secret":
            return names[0] in [item["name"] for item in model.items(spec, "imagePullSecrets")]
        case "volume":
            return [model.plain_volume(item) for item in model.items(spec, "volumes") if item["name"] == names[0]]
        case "env":
            present = model.items(model.all_containers(made)[names[0]], "env")
            return [model.plain_env(item) for item in present if item["name"] == names[1]]
        case "mount":
            present = model.items(model.all_containers(made)[names[0]], "volumeMounts")
            return [model.plain_mount(item) for item in present if model.path_of(item) == names[1]]
    return spec.get(kind)


# The engine


def check(case: Any) -> None:
    """Compare the engine's decision with the models'."""
    if "ladders" in case:
        _check_whole(case)
    else:
        _check_own(case)


def _check_own(case: Any) -> None:
    rule_set = rule_set_of(case["rules"])
    decision = decide(rule_set, case)
    expected = model.mutate(case["pod"], case["rules"], case["world"])
    steps = [step for step in decision.trace if not step.audit]
    failed = [step.rule.removeprefix("PodDefaults/") for step in steps if step.reason == EVALUATION_ERROR]
    assert (decision.allowed, failed) == (expected.allowed, expected.failed), decision.trace
    if not decision.allowed:
        assert decision.patch == ()
        assert decision.status
        assert decision.status.code == 500
        return
    results = [plain(made, case["pod"]) for made in (patched(case["pod"], decision), expected.pod)]
    assert same(*results), results
    unknown = [
        step.rule.removeprefix("PodDefaults/")
        for step in steps
        if step.cluster_unknown and step.reason != EVALUATION_ERROR
    ]
    assert unknown == expected.unknown
    again = decide(rule_set, {**case, "pod": decision.result})
    assert (again.allowed, again.patch) == (True, ())


def _check_whole(case: Any) -> None:
    rule_set = rule_set_of(
        case["rules"], *map(ladders.rule_of, case["ladders"]), *map(injections.rule_of, case["injections"])
    )
    decision = decide(rule_set, case)
    allowed, expected = expected_whole(case)
    assert decision.allowed == allowed, decision.trace
    if allowed:
        results = [plain(made, case["pod"]) for made in (patched(case["pod"], decision), expected)]
        assert same(injections.settled(results[0], case["pod"], results[1]), results[1]), results
        again = decide(rule_set, {**case, "pod": decision.result})
        assert (again.allowed, again.patch) == (True, ())


def plain(made: Any, before: Any) -> Any:
    """Return a pod with items of lists that rules wrote without members that are defaults, which they need not write.

    Items that the pod had before stay as they are.
    """
    made = copy.deepcopy(made)
    for parents, members in (
        (([made["spec"]], [before["spec"]]), {"volumes": model.plain_volume, "tolerations": model.toleration_key}),
        (
            (model.all_containers(made), model.all_containers(before)),
            {"env": model.plain_env, "volumeMounts": model.plain_mount},
        ),
    ):
        for parent, own in zip(*parents, strict=True):
            for name, form in members.items():
                if parent.get(name):
                    parent[name] = [item if item in model.items(own, name) else form(item) for item in parent[name]]
    return made


def check_law(case: Any) -> None:
    """Assert that a pod and the pod that the API server makes of it get the same decision."""
    server, namespace = api_server(case["world"]), case["world"].namespace
    stored = server.mutate(case["pod"], namespace)
    if stored.refusal or case["world"].default_classes is None:
        return
    rule_set = rule_set_of(case["rules"])
    first, second = (decide(rule_set, {**case, "pod": made}) for made in (case["pod"], stored.pod))
    assert first.allowed == second.allowed
    if not first.allowed:
        return
    after = [server.mutate(as_mapping(decision.result), namespace) for decision in (first, second)]
    assert after[0].refusal == after[1].refusal
    for key in model.mutate(case["pod"], case["rules"], case["world"]).claimed:
        assert same(*(value_at(each.pod, key) for each in after)), key


def rule_set_of(documents: Any, *rules: Rule) -> RuleSet:
    """Return the rule set of documents and other rules. Asserts that they have no errors."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    loaded = load_texts([SourceFile("rules.json", text, is_json=True)])
    rule_set, problems = compile_rules([*loaded.rules, *rules])
    errors = [str(each) for each in (*loaded.problems, *problems) if each.severity is Severity.ERROR]
    assert not errors, errors
    return rule_set


def decide(rule_set: RuleSet, case: Any) -> Decision:
    return rule_set.mutate(request(case["pod"], namespace=case["world"].namespace), cluster_of(case))


def patched(before: Any, decision: Decision) -> Any:
    """Return the pod after the patch. Asserts that each operation is needed, and that the result is the decision's."""
    result = json.loads(json.dumps(before))  # generated pods share objects
    for operation in decision.patch:
        after = apply_rfc_6902(result, [operation.to_json()])
        assert not same(after, result), operation
        result = after
    assert same(result, decision.result)
    return result


def cluster_of(case: Any) -> Cluster:
    world, nodes = case["world"], case.get("nodes", [])
    runtime = {
        name: ClassScheduling(each.get("nodeSelector", {}), tuple(each.get("tolerations", [])))
        for name, each in {"nvidia": {}, **world.runtime_classes}.items()
    }
    default = world.default_classes
    priority = None if default is None else {name: name in default for name in (*CLASSES, "batch")}
    return Cluster(
        nodes=tuple(map(ladders.node_of, nodes or ())),
        namespaces={} if world.labels is None else {world.namespace: world.labels},
        namespaces_complete=world.labels is not None,
        freshness=Freshness.NEVER if nodes is None else Freshness.SYNCED,
        classes=Classes(priority, runtime),
    )
