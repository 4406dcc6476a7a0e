"""Findings about GPUs: MIG profiles, cards, coefficients, and what a cluster has."""

import json
from pathlib import Path

import pytest

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.mig import profile_message, profile_of
from rules_engine.authoring.check.check import check_files
from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.model.problems.problem import Problem
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector
from rules_engine.rules.overlap import contradictory_key
from tests.support.authoring import cli, injection, ladder, validation, write

MIG = "nvidia.com/mig-"
GPU = "nvidia.com/gpu"


def findings(tmp_path: Path, *documents: str, cluster: str = "") -> list[tuple[str, str, str]]:
    """Return the code, the text that is marked, and the message of each problem."""
    write(tmp_path, {"rules/rules.yaml": "---\n".join(documents), "cluster.yaml": cluster})
    checked = check_files([tmp_path / "rules"], read_cluster([tmp_path / "cluster.yaml"]) if cluster else None)

    def marked(problem: Problem) -> str:
        line = checked.sources[problem.location.file][problem.location.line - 1]
        return line[problem.location.column - 1 :][: problem.length]

    return [(problem.code.value, marked(problem), problem.message) for problem in checked.answer.problems]


@pytest.mark.parametrize(
    ("resource", "suggested"),
    [
        (f"{MIG}3g.45gb", "3g.47gb"),
        (f"{MIG}9g.90gb", None),
        (f"{MIG}1g.6gb.extra", "1g.6gb"),
        (f"{MIG}2c.1g.6gb", "1g.6gb"),
        (f"{MIG}3g40gb", "3g.40gb"),
        (f"{MIG}7g.75gb", "7g.79gb"),
    ],
)
def test_a_profile_of_no_known_card_is_reported_with_the_nearest(
    tmp_path: Path, resource: str, suggested: str | None
) -> None:
    [(code, marked, message)] = findings(tmp_path, ladder("l", resource, GPU))
    profile = resource.removeprefix(MIG)
    assert (code, marked) == ("unknown-mig-profile", resource)
    assert message.startswith(f"no known card has the MIG profile '{profile}'")
    assert suggested is None or message.endswith(f" (did you mean '{suggested}'?)")


def test_the_suggestion_is_of_the_cards_that_have_the_other_rungs(tmp_path: Path) -> None:
    for beside, suggested in (("1g.10gb", "3g.40gb"), ("1g.6gb", ""), ("1g.12gb", "3g.47gb")):
        [(_, _, message)] = findings(tmp_path, ladder("l", f"{MIG}3g.35gb", f"{MIG}{beside}", GPU))
        assert suggested in message


def test_gpu_resources_and_resources_of_validations_are_checked_too(tmp_path: Path) -> None:
    reported = findings(
        tmp_path,
        injection("i", gpuResource=f"{MIG}1g.7gb"),
        validation(
            "v",
            "object.spec.enableServiceLinks",
            match=f"{{resources: [{GPU}, 'nvidia.com/mig-*.9gb', {MIG}2g.15gb, {MIG}1g.16gb]}}",
        ),
    )
    assert reported == [
        ("unknown-mig-profile", "gpuResource", "no known card has the MIG profile '1g.7gb' (did you mean '1g.6gb'?)"),
        ("unknown-mig-profile", "resources", "no known card has the MIG profile '2g.15gb' (did you mean '2g.16gb'?)"),
    ]


def test_a_domain_without_its_end_is_reported(tmp_path: Path) -> None:
    reported = findings(
        tmp_path,
        ladder("l", "nvidia/mig-1g.10gb", "nvidia.com/gpu", "smarter-devices/gpu"),
        injection("i", gpuResource="amd/gpu"),
        validation(
            "v", "object.spec.enableServiceLinks", match="{resources: [nvidia/gpu, nvidia.com/gpu, 'nvidia/*']}"
        ),
    )
    assert reported == [
        (
            "unlikely-resource",
            "nvidia/mig-1g.10gb",
            "no device plugin offers nvidia/mig-1g.10gb (did you mean 'nvidia.com/mig-1g.10gb'?)",
        ),
        ("unlikely-resource", "gpuResource", "no device plugin offers amd/gpu (did you mean 'amd.com/gpu'?)"),
        ("unlikely-resource", "resources", "no device plugin offers nvidia/gpu (did you mean 'nvidia.com/gpu'?)"),
    ]


SLIPS = {
    "nvidia.com/gpus": GPU, "nvidia.com/GPU": GPU, "nvida.com/gpu": GPU, "nvidia.com/gup": GPU,
    "amd.com/gpus": "amd.com/gpu",
    "nvidia.com/mig3g.40gb": f"{MIG}3g.40gb", "nvidia.com/mgi-3g.40gb": f"{MIG}3g.40gb",
}  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), SLIPS.items())
def test_a_misspelt_resource_is_reported_wherever_it_is_written(tmp_path: Path, written: str, meant: str) -> None:
    message = f"no device plugin offers {written} (did you mean '{meant}'?)"
    assumed = ladder("l", f"{MIG}1g.10gb", f"{{resource: {written}, assume: true}}")
    injected = injection("i", coefficients=f"{{{written}: 1}}")
    checked = validation("v", "object.spec.enableServiceLinks", match=f"{{resources: [{written}]}}")
    problems = findings(tmp_path, assumed, injected, injection("j", gpuResource=written), checked)
    assert [item for item in problems if item[2] == message] == [
        ("unlikely-resource", marked, message) for marked in (written, written, "gpuResource", "resources")
    ]


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu.shared", "nvidia.com/pgpu", "nvidia.com/vgpu", "nvidia.com/gpu-h100", "nvidia.com/shm",
        f"{MIG}1g.10gb.shared", f"{MIG}1g.10gb.me", f"{MIG}4g.40gb", "amd.com/gpu", "gpu.intel.com/i915",
        "gpu.intel.com/xe", "habana.ai/gaudi", "google.com/tpu", "x.com/gpu", "rdma/hca",
        "huawei.com/Ascend910B", "huawei.com/Ascend910B2",
    ],
)  # fmt: skip
def test_a_resource_in_use_is_not_reported(tmp_path: Path, resource: str) -> None:
    assert findings(tmp_path, ladder("l", resource, "example.com/gpu")) == []


@pytest.mark.parametrize(
    ("sizes", "marked"), [("1g.10gb 7g.80gb 3g.40gb", "3g.40gb"), ("7g.80gb 1g.10gb 1g.20gb 3g.40gb", "3g.40gb")]
)
def test_rungs_that_are_not_in_the_order_of_their_size_are_reported(tmp_path: Path, sizes: str, marked: str) -> None:
    problems = findings(tmp_path, ladder("l", *(f"{MIG}{size}" for size in sizes.split()), GPU))
    assert [(code, text) for code, text, _ in problems] == [("rung-order", f"{MIG}{marked}")]


@pytest.mark.parametrize(
    "sizes", ["7g.80gb 3g.40gb 1g.20gb 1g.10gb", "1g.10gb 1g.20gb 3g.40gb 4g.40gb", "3g.40gb 4g.40gb"]
)
def test_rungs_of_one_order_are_not_reported(tmp_path: Path, sizes: str) -> None:
    assert findings(tmp_path, ladder("l", GPU, *(f"{MIG}{size}" for size in sizes.split()))) == []


@pytest.mark.parametrize("name", sorted(catalogue().profiles))
def test_every_known_profile_is_accepted(name: str) -> None:
    for suffix in ("", ".me", ".me.all", "-me", ".gfx", ".shared", ".me.shared"):
        assert profile_of(f"{MIG}{name}{suffix}") == name
        assert profile_message(f"{MIG}1c.{name}{suffix}") == ""


@pytest.mark.parametrize("resource", [GPU, "nvidia.com/gpu.shared", "amd.com/gpu", "example.com/mig-9g.9gb"])
def test_other_resources_have_no_profile(resource: str) -> None:
    assert profile_of(resource) is None
    assert profile_message(resource) == ""


def test_a_ladder_that_mixes_cards_is_reported_at_the_first_rung_of_another_card(tmp_path: Path) -> None:
    rungs = [f"{MIG}{name}" for name in ("3g.40gb", "2g.20gb", "1g.5gb", "1g.6gb")]
    assert findings(tmp_path, ladder("l", GPU, *rungs, "nvidia.com/gpu.shared")) == [
        (
            "mixed-cards",
            f"{MIG}1g.5gb",
            (
                "no card has 1g.5gb beside 3g.40gb, 2g.20gb: it is a profile of A100-40GB, and those above it are of "
                "A100-80GB or H100-80GB"
            ),
        )
    ]


@pytest.mark.parametrize(
    "profiles",
    [
        ("2g.10gb", "1g.10gb", "1g.5gb"),
        ("3g.40gb", "1g.20gb", "1g.10gb"),
        ("1g.18gb", "1g.35gb"),
        ("1g.18gb", "1g.36gb"),
        ("2g.48gb", "1g.24gb.gfx", "1c.2g.48gb"),
        ("3g.30gb", "2g.20gb", "1g.10gb"),
    ],
)
def test_a_ladder_of_one_family_is_not_reported(tmp_path: Path, profiles: tuple[str, ...]) -> None:
    assert findings(tmp_path, ladder("l", *(f"{MIG}{name}" for name in profiles), GPU)) == []


def test_an_unknown_profile_belongs_to_no_other_card(tmp_path: Path) -> None:
    problems = findings(tmp_path, ladder("l", f"{MIG}3g.45gb", f"{MIG}1g.5gb", GPU))
    assert [code for code, _, _ in problems] == ["unknown-mig-profile"]


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        ("{cpu: 4000}", "cpu of 4000 is 4000 cores for each GPU: write 4000m for millicores"),
        ("{cpu: 257}", "cpu of 257 is 257 cores for each GPU: write 257m for millicores"),
        ("{cpu: 4k}", "cpu of 4k is 4000 cores for each GPU: check its unit"),
        ("{memory: 8192Gi}", "memory of 8192Gi for each GPU is more than any machine has for one: check its unit"),
        ("{memory: 80}", "memory of 80 is 80 bytes: write Mi or Gi for more"),
    ],
)
def test_an_implausible_coefficient_is_reported_at_its_value(tmp_path: Path, coefficients: str, message: str) -> None:
    value = coefficients.strip("{}").partition(": ")[2]
    assert findings(tmp_path, injection("i", coefficients=coefficients)) == [("unlikely-unit", value, message)]


def test_large_machines_are_plausible(tmp_path: Path) -> None:
    assert findings(tmp_path, injection("i", coefficients="{cpu: 256, memory: 2Ti}")) == []
    nodes = inventory("{name: a, allocatable: {cpu: 4000, memory: 8Ti}}")
    assert findings(tmp_path, nodes) == []


OWN = "{a: {coefficients: {cpu: 2}}, b: {}}"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"match": "{namespaces: [a, b]}"}, ("unused-default", "coefficients")),
        (
            {"match": "{namespaces: [a]}", "coefficients": "{}", "annotations": "{x/y: z}"},
            ("unused-default", "annotations"),
        ),
        ({"match": "{namespaces: [a, c]}"}, None),
        ({"match": "{namespaces: ['a*']}"}, None),
        ({"match": "{namespaces: [a]}", "namespaces": "{a: {inherit: Merge, coefficients: {memory: 8Gi}}}"}, None),
        ({"match": "{namespaces: [a, b]}", "coefficients": "{}"}, None),
    ],
)
def test_a_default_that_no_namespace_has_is_reported(
    tmp_path: Path, fields: dict[str, str], expected: tuple[str, str] | None
) -> None:
    problems = findings(tmp_path, injection("i", **{"namespaces": OWN, **fields}))
    reported = [(code, marked) for code, marked, _ in problems if code != "unused-entry"]
    assert reported == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("earlier", "reported"),
    [
        ({"match": "{namespaces: [a, c]}"}, True),
        ({"match": "{namespaces: ['a*'], excludeNamespaces: [ab]}"}, True),
        ({"match": "{namespaces: [c]}"}, False),
        ({"match": "{namespaces: [a]}", "gpuType": "T4"}, False),
        ({"match": "{namespaces: [a]}", "mode": "Audit"}, False),
        ({"match": "{namespaces: [a], objectSelector: {matchLabels: {x: z}}}"}, False),
        ({"match": "{namespaces: ['*']}", "priority": "-1"}, False),
    ],
)
def test_an_entry_that_an_earlier_injection_shadows_is_reported(
    tmp_path: Path, earlier: dict[str, str], *, reported: bool
) -> None:
    rules = injection("a", **earlier), injection("b", namespaces=OWN)
    problems = [item for item in findings(tmp_path, *rules) if item[0] != "unreachable-injection"]
    assert [(code, marked) for code, marked, _ in problems] == ([("unused-entry", "a")] if reported else [])
    for _, _, message in problems:
        assert message.startswith("this entry is never used: in the namespace 'a' ResourceInjection/a (")
        assert message.endswith(") matches the same pods and comes first by name")


@pytest.mark.parametrize(
    ("selector", "reported"),
    [
        ("{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [b, c]}]}", True),
        ("{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [c]}]}", True),
        ("{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}", True),
        ("{matchLabels: {a: b}, matchExpressions: [{key: a, operator: NotIn, values: [c]}]}", False),
        ("{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: NotIn, values: [b]}]}", False),
        ("{matchExpressions: [{key: a, operator: Exists}, {key: b, operator: DoesNotExist}]}", False),
    ],
)
def test_a_selector_that_no_labels_meet_is_reported(tmp_path: Path, selector: str, *, reported: bool) -> None:
    for field in ("namespaceSelector", "objectSelector"):
        problems = findings(tmp_path, injection("i", match=f"{{{field}: {selector}}}"))
        message = f"ResourceInjection/i matches no pod: no label 'a' meets all requirements of {field}"
        assert problems == ([("matches-nothing", field, message)] if reported else [])


def test_the_absence_of_a_label_meets_requirements_too() -> None:
    absent = LabelRequirement("a", ConditionKind.DOES_NOT_EXIST)
    other = LabelRequirement("a", ConditionKind.NOT_IN, ("b",))
    assert contradictory_key(LabelSelector((absent, other))) is None
    assert contradictory_key(LabelSelector((absent, LabelRequirement("a", ConditionKind.IN, ("b",))))) == "a"
    assert contradictory_key(LabelSelector()) is None


def inventory(*nodes: str) -> str:
    lines = "".join(f"    - {node}\n" for node in nodes)
    return f"apiVersion: gpurules.io/v1\nkind: ClusterInventory\nmetadata: {{name: c}}\nspec:\n  nodes:\n{lines}"


PAIR = "no node with nvidia.com/gpu has the cpu and memory that one nvidia.com/gpu gets"
JOINTLY = f"{PAIR}: each has too little of one of them"

NODES = inventory(
    "{name: a, ready: false, allocatable: {nvidia.com/gpu: 4, cpu: 32, memory: 64Gi}}",
    "{name: b, labels: {pool: big}, allocatable: {nvidia.com/gpu: 4, cpu: 8, memory: 512Gi}}",
    "{name: c, allocatable: {nvidia.com/mig-2g.20gb: 4, nvidia.com/mig-4g.40gb: 0, cpu: 200, memory: 900Gi}}",
)


NO_NODE = "no node counts for FallbackLadder/l, so that none offers"


def test_rungs_that_no_node_offers_are_reported_unless_assumed(tmp_path: Path) -> None:
    rungs = [f"{MIG}4g.40gb", f"{MIG}2g.20gb", f"{MIG}1g.10gb", "{resource: nvidia.com/gpu.shared, assume: true}"]
    assert findings(tmp_path, ladder("l", *rungs), cluster=NODES) == [
        ("rung-not-offered", f"{MIG}4g.40gb", f"no node offers {MIG}4g.40gb: each request for it must move"),
        ("rung-not-offered", f"{MIG}1g.10gb", f"no node offers {MIG}1g.10gb: nothing moves to this rung"),
    ]


def test_a_rung_with_a_profile_that_the_cards_of_the_nodes_lack_says_so(tmp_path: Path) -> None:
    labelled = "{name: a, labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}, allocatable: {nvidia.com/gpu: 8}}"
    (found,) = findings(tmp_path, ladder("l", f"{MIG}1g.5gb", GPU), cluster=inventory(labelled))
    assert found[2].startswith(
        f"no node offers {MIG}1g.5gb: each request for it must move; NVIDIA-A100-SXM4-80GB does "
    )
    (found,) = findings(tmp_path, ladder("l", f"{MIG}1g.10gb", GPU), cluster=inventory(labelled))
    assert found[2] == f"no node offers {MIG}1g.10gb: each request for it must move"


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        (
            {"nodes": "{selector: {matchLabels: {pool: big}}}"},
            [f"no node offers {MIG}2g.20gb: each request for it must move"],
        ),
        ({"nodes": "{require: [Ready, Schedulable, MatchesPod]}"}, []),
        (
            {"nodes": "{selector: {matchLabels: {pool: none}}}"},
            [
                f"{NO_NODE} {MIG}2g.20gb: each request for it must move, and no node offers another rung",
                f"{NO_NODE} {GPU}: nothing moves to this rung",
            ],
        ),
        ({"mode": "'Off'", "nodes": "{selector: {matchLabels: {pool: none}}}"}, []),
    ],
)
def test_only_nodes_that_count_for_the_ladder_offer_its_rungs(
    tmp_path: Path, fields: dict[str, str], messages: list[str]
) -> None:
    problems = findings(tmp_path, ladder("l", f"{MIG}2g.20gb", GPU, **fields), cluster=NODES)
    assert [message for _, _, message in problems] == messages


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"coefficients": "{cpu: 33}"},
            [("cpu", "one nvidia.com/gpu gets 33 of cpu, and no node with nvidia.com/gpu has more than 32")],
        ),
        ({"coefficients": "{cpu: 16, memory: 128Gi}"}, [("coefficients", JOINTLY)]),
        (
            {"namespaces": "{a: {coefficients: {memory: 600Gi}}, b: {inherit: Merge, coefficients: {memory: 1Ti}}}"},
            [
                (
                    "memory",
                    "one nvidia.com/gpu gets 600Gi of memory, and no node with nvidia.com/gpu has more than 512Gi",
                ),
                (
                    "memory",
                    "one nvidia.com/gpu gets 1Ti of memory, and no node with nvidia.com/gpu has more than 512Gi",
                ),
            ],
        ),
        (
            {"coefficients": "{cpu: 40}", "namespaces": "{a: {inherit: Merge, coefficients: {memory: 8Gi}}}"},
            [("cpu", "one nvidia.com/gpu gets 40 of cpu, and no node with nvidia.com/gpu has more than 32")],
        ),
        ({"coefficients": "{cpu: 32}"}, []),
        ({"coefficients": "{cpu: 8, memory: 512Gi}"}, []),
        ({"coefficients": "{ephemeral-storage: 8Ti}"}, []),
        ({"coefficients": "{cpu: 99}", "gpuResource": "amd.com/gpu"}, []),
        (
            {"coefficients": "{cpu: 99}", "match": "{namespaces: [a]}", "namespaces": "{a: {coefficients: {cpu: 1}}}"},
            [],
        ),
    ],
)
def test_coefficients_that_no_node_with_gpus_has_are_reported(
    tmp_path: Path, fields: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    problems = findings(tmp_path, injection("i", **fields), cluster=NODES)
    assert [(marked, message) for code, marked, message in problems if code == "exceeds-nodes"] == expected


def quotas(**limits: str) -> str:
    """Return a cluster whose nodes offer MIG devices of two profiles and cards, with quotas by namespace."""
    nodes = inventory(f"{{name: a, allocatable: {{{MIG}3g.40gb: 2, {MIG}1g.10gb: 2, {GPU}: 4}}}}")
    items = "".join(
        f"    - {{kind: ResourceQuota, metadata: {{name: q{index}, namespace: {name.rstrip('_')}}}, "
        f"spec: {{hard: {{{hard}}}}}}}\n"
        for index, (name, hard) in enumerate(limits.items())
    )
    return f"{nodes}  objects:\n    - {{kind: Namespace, metadata: {{name: ml, labels: {{team: a}}}}}}\n{items}"


LEFT = f"a ResourceQuota limits {MIG}3g.40gb and none limits"
THREE = f"requests.{MIG}3g.40gb: 2"
SMALLER = f"requests.{MIG}1g.10gb: 2"
CARDS = f"requests.{GPU}: 2"


@pytest.mark.parametrize(
    ("limits", "fields", "messages"),
    [
        (
            {"ml": THREE},
            {},
            [f"{LEFT} {name} in the namespace ml: moved pods leave the quota" for name in (GPU, f"{MIG}1g.10gb")],
        ),
        (
            {"ml": f"{THREE}, {CARDS}", "other": THREE},
            {},
            [
                f"{LEFT} {GPU} in the namespace other: moved pods leave the quota",
                f"{LEFT} {MIG}1g.10gb in the namespaces ml and other: moved pods leave the quota",
            ],
        ),
        (
            {"ml": f"{THREE}, {SMALLER}", "other": f"{SMALLER}, {THREE}"},
            {"direction": "Up"},
            [],
        ),
        (
            {"b": f"{THREE}, {CARDS}", "a": f"{CARDS}, {THREE}"},
            {},
            [f"{LEFT} {MIG}1g.10gb in the namespaces a and b: moved pods leave the quota"],
        ),
        # Two quotas of one namespace limit its pods together, and no pod moves to a rung above its own.
        ({"ml": f"{THREE}, {SMALLER}", "ml_": CARDS}, {}, []),
        ({"ml": CARDS}, {}, []),
        # The API server stores these, and limits no pod by them.
        ({"ml": f"{MIG}3g.40gb: 2, limits.{MIG}3g.40gb: 2, pods: 4"}, {}, []),
        ({"ml": f"{THREE}, mig.nvidia.com.deviceclass.resource.k8s.io/devices: 2"}, {}, []),
        ({"ml": THREE}, {"match": "{namespaces: [m*], excludeNamespaces: [ml]}"}, []),
        ({"ml": THREE}, {"match": "{namespaceSelector: {matchLabels: {team: b}}}"}, []),
        ({"ml": THREE}, {"mode": "'Off'"}, []),
        (
            {"ml": THREE, "other": THREE},
            {"match": "{namespaceSelector: {matchLabels: {team: a}}}", "mode": "Audit"},
            [f"{LEFT} {name} in the namespace ml: moved pods leave the quota" for name in (GPU, f"{MIG}1g.10gb")],
        ),
    ],
)
def test_moves_by_which_pods_leave_the_quota_of_their_namespace_are_reported(
    tmp_path: Path, limits: dict[str, str], fields: dict[str, str], messages: list[str]
) -> None:
    problems = findings(
        tmp_path, ladder("l", f"{MIG}3g.40gb", f"{MIG}1g.10gb", GPU, **fields), cluster=quotas(**limits)
    )
    assert problems == [("leaves-quota", f"{MIG}3g.40gb", message) for message in messages]


def test_pods_leave_no_quota_by_rungs_that_no_node_offers_unless_assumed(tmp_path: Path) -> None:
    for rung, left in (("nvidia.com/gpu.shared", []), ("{resource: nvidia.com/gpu.shared, assume: true}", [THREE])):
        problems = findings(tmp_path, ladder("l", f"{MIG}3g.40gb", rung), cluster=quotas(ml=THREE))
        assert [code for code, _, _ in problems] == ["leaves-quota" if left else "rung-not-offered"]


def test_quotas_that_were_not_read_are_reported_as_not_read(tmp_path: Path) -> None:
    node = (
        f'{{"kind": "Node", "metadata": {{"name": "a"}}, "status": {{"allocatable": {{"{MIG}3g.40gb": "2", '
        f'"{GPU}": "1"}}}}}}'
    )
    quota = (
        '{"kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "ml"}, '
        f'"spec": {{"hard": {{"requests.{MIG}3g.40gb": "2"}}}}}}'
    )
    selected = ladder("l", f"{MIG}3g.40gb", GPU, match="{namespaceSelector: {matchLabels: {team: a}}}")
    write(tmp_path, {"l.yaml": ladder("l", f"{MIG}3g.40gb", GPU), "selected.yaml": selected})
    for items, rules, summary in (
        (node, "l.yaml", "no problems, resourcequotas and namespaces were not read"),
        (f"{node}, {quota}", "l.yaml", "1 warning, namespaces were not read"),
        (f"{node}, {quota}", "selected.yaml", "no problems, namespaces were not read"),
    ):
        (tmp_path / "list.json").write_text(f'{{"kind": "List", "items": [{items}]}}')
        result = cli("check", tmp_path / rules, "--cluster", tmp_path / "list.json")
        assert result.stdout.endswith(f"1 file checked, {summary}\n")
        assert result.exit_code == 0
    answer = json.loads(
        cli("check", tmp_path / "l.yaml", "--cluster", tmp_path / "list.json", "--output", "json").stdout
    )
    assert answer["notRead"] == ["namespaces"]


def test_without_a_cluster_nothing_depends_on_one(tmp_path: Path) -> None:
    assert findings(tmp_path, ladder("l", f"{MIG}4g.40gb", GPU), injection("i", coefficients="{cpu: 99}")) == []


def test_the_command_reads_the_cluster_like_explain(tmp_path: Path) -> None:
    write(tmp_path, {"l.yaml": ladder("l", f"{MIG}2g.20gb", "nvidia.com/gpu.shared"), "cluster.yaml": NODES})
    result = cli("check", tmp_path / "l.yaml", "--cluster", tmp_path / "cluster.yaml")
    assert result.exit_code == 0
    assert (
        "l.yaml:7:18: warning: no node offers nvidia.com/gpu.shared: nothing moves to this rung [rung-not-offered]"
        in result.stdout
    )
    assert result.stdout.endswith("1 file checked, 1 warning\n")
    (tmp_path / "list.json").write_text(
        '{"kind": "NodeList", "items": [{"metadata": {"name": "a"}, "status": {"allocatable": '
        '{"nvidia.com/gpu.shared": "1", "nvidia.com/mig-2g.20gb": "1"}}}]}'
    )
    assert (
        cli("check", tmp_path / "l.yaml", "--cluster", tmp_path / "list.json").stdout
        == "1 file checked, no problems, resourcequotas and namespaces were not read\n"
    )


def test_problems_of_the_cluster_are_reported_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path, {"l.yaml": ladder("l", f"{MIG}2g.20gb", GPU), "cluster.yaml": NODES.replace("cpu: 32", "cpu: x")})
    result = cli("check", tmp_path / "l.yaml", "--cluster", tmp_path / "cluster.yaml")
    assert result.exit_code == 2
    assert "cluster.yaml:6:" in result.stdout
    assert "[bad-quantity]\n    6 |     - {name: a, " in result.stdout
