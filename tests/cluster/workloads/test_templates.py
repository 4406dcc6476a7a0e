"""Pod templates of objects by the rows of a user."""

from typing import Any

import pytest

from rules_engine.cluster.read.manifests import manifest_json
from rules_engine.cluster.workloads.kind import read_workload_kind
from rules_engine.cluster.workloads.table import ObjectKey, WorkloadTable
from rules_engine.cluster.workloads.templates import PodTemplate, WorkloadFacts, read_workload
from rules_engine.language.yaml.documents import Dialect
from rules_engine.language.yaml.nodes import MapNode
from rules_engine.model.problems.problem import Problems
from tests.support.loading import documents, rule

TEMPLATE = "template: {spec: {containers: [{name: c}]}}"
RUNTIME = {"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "r"}]}}, "empty": None}}


def read(row: str, spec: str) -> WorkloadFacts:
    """Return a Trainer with this spec, by a row with these members; the input has the Runtime `r`, too."""

    def find(group: str, key: ObjectKey) -> Any:
        return RUNTIME if (group, key) == ("example.com", ("Runtime", "r", "")) else None

    (document,), _ = documents(rule("WorkloadKind", f"{{group: example.com, kind: Trainer, {row}}}"))
    assert isinstance(document.root, MapNode)
    problems = Problems()
    kind = read_workload_kind(document.root, problems)
    assert problems.items == []
    text = f"apiVersion: example.com/v1\nkind: Trainer\nmetadata: {{name: t}}\nspec: {spec}\n"
    (manifest,), _ = documents(text, Dialect.MANIFESTS)
    value: Any = manifest_json(manifest.root)
    return read_workload(value, WorkloadTable((kind,), find))


def template(members: str, spec: str) -> PodTemplate:
    """Return the only template of a Trainer, with these members of its row."""
    (found,) = read(f"templates: [{{path: spec.template, {members}}}]", f"{{{spec}, {TEMPLATE}}}").templates
    return found


@pytest.mark.parametrize(
    ("members", "spec", "reason"),
    [
        ("pods: object.spec.replicas", "replicas: two", "pods is not an int"),
        ("pods: object.spec.replicas", "replicas: true", "pods is not an int"),
        ("pods: object.spec.replicas * 2", "replicas: two", "no such overload: * applied to (string, int)"),
        ("pods: object.spec.replicas", "replicas: null", "object.spec.replicas: no such key"),
        ("name: object.spec.name", "name: 3", "name is not a string"),
        (
            "pods: 'object.spec.a.map(x, object.spec.a.map(y, object.spec.a.map(z, 1).sum()).sum()).sum()'",
            f"a: {[0] * 150}",
            "the cost limit of 2000000 for the workload kinds of one input is used up",
        ),
    ],
)
def test_a_row_that_fails_leaves_the_number_unknown(members: str, spec: str, reason: str) -> None:
    found = template(members, spec)
    assert (found.parallel, found.total) == (1, 1)
    assert found.unknown.startswith("its row in the table, x, fails: ")
    assert reason in found.unknown


@pytest.mark.parametrize(
    ("members", "parallel", "total", "unknown"),
    [
        ("pods: '2'", 2, 2, ""),
        ("pods: '2', total: '6'", 2, 6, ""),
        ("pods: '0 - 2', total: '0 - 6'", 0, 0, ""),
        ("atMost: '4', pods: '2'", 4, 4, "at most 4 at once"),
        ("atMost: 0 - 1, pods: '2'", 2, 2, ""),
        ("atMost: '4', unknown: \"'the queue decides'\"", 4, 4, "the queue decides"),
        ("pods: '4', unknown: \"'the queue decides'\"", 1, 1, "the queue decides"),
        ("pods: '4', unknown: \"''\"", 4, 4, ""),
    ],
)
def test_a_template_has_a_number_or_a_reason(members: str, parallel: int, total: int, unknown: str) -> None:
    found = template(members, "a: 1")
    assert (found.parallel, found.total, found.unknown) == (parallel, total, unknown)


@pytest.mark.parametrize(
    ("path", "spec", "expected"),
    [
        ("spec.groups[].template", f"{{groups: [{{{TEMPLATE}}}, {{name: b}}, 3, {{{TEMPLATE}}}]}}", [0, 3]),
        ("spec.groups{}.template", f"{{groups: {{a: {{{TEMPLATE}}}, b: null, c: {{{TEMPLATE}}}}}}}", ["a", "c"]),
        ("spec.groups[].template", "{groups: {a: 1}}", []),
        ("spec.groups{}.template", "{groups: [1]}", []),
        ("spec.groups.template", "{groups: 3}", []),
    ],
)
def test_a_path_finds_each_item_and_member(path: str, spec: str, expected: list[Any]) -> None:
    assert [pod.path[2] for pod in read(f"templates: [{{path: '{path}'}}]", spec).templates] == expected


def test_expressions_have_the_names_of_their_path() -> None:
    row = (
        "templates: [{path: 'spec.groups[].parts{}.template', "
        "name: \"parent.name + '/' + key + '/' + string(item.size)\", pods: item.size * parent.replicas}]"
    )
    (pod,) = read(row, f"{{groups: [{{name: g, replicas: 2, parts: {{p: {{size: 3, {TEMPLATE}}}}}}}]}}").templates
    assert (pod.role, pod.parallel) == ("g/p/3", 6)


def test_a_pod_may_be_built_of_other_members() -> None:
    pod_spec = "{'containers': [{'name': 'c'}], 'of': [value.size, 2.5, true, null]}"
    row = f"templates: [{{path: spec.engine, pod: \"{{'spec': {pod_spec}}}\"}}]"
    (pod,) = read(row, "{engine: {size: 3}}").templates
    assert pod.pod["spec"] == {"containers": [{"name": "c"}], "of": [3, 2.5, True, None]}
    failed = read("templates: [{path: spec.engine, pod: value}]", "{engine: 3}")
    assert (failed.templates, failed.unknown) == ((), "its row in the table, x, fails: pod is not a map")


REFERENCES = "references: {runtime: {kind: \"'Runtime'\", name: object.spec.runtime}}"


def test_an_object_may_refer_to_another_one() -> None:
    row = f"{REFERENCES}, templates: [{{path: runtime.spec.template, pods: runtime.spec.replicas}}]"
    (pod,) = read(row, "{runtime: r}").templates
    assert (pod.path, pod.parallel) == (("runtime", "spec", "template"), 5)


@pytest.mark.parametrize(
    ("row", "spec", "reason"),
    [
        (REFERENCES, "{runtime: other}", "Runtime other is not in the input"),
        (
            REFERENCES,
            "{a: 1}",
            "its row in the table, x, fails: object.spec.runtime: no such key (.? and [?…] read what may be absent)",
        ),
        (REFERENCES, "{runtime: 3}", "its row in the table, x, fails: name is not a string"),
        ("gang: {minimum: object.spec.least}", "{least: two}", "its row in the table, x, fails: minimum is not an int"),
        ("unknown: \"'a queue decides'\"", "{a: 1}", "a queue decides"),
    ],
)
def test_an_object_whose_pods_are_unknown_has_a_reason(row: str, spec: str, reason: str) -> None:
    assert read(row, spec).unknown == reason
    (pod,) = read(f"{row}, templates: [{{path: spec.template}}]", spec[:-1] + f", {TEMPLATE}}}").templates
    assert pod.unknown


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        ("minimum: '4'", (4, 1)),
        ("minimum: '4', number: '3'", (4, 3)),
        ("minimum: '1'", None),
        ("minimum: '4', number: '0'", None),
    ],
)
def test_a_gang_has_several_pods(gang: str, expected: tuple[int, int] | None) -> None:
    row = f"gang: {{{gang}}}, decidedBy: \"'Queue'\", countField: \"'spec.size'\", templates: [{{path: spec.template}}]"
    found = read(row, f"{{{TEMPLATE}}}")
    assert (found.gang and (found.gang.minimum, found.gang.number)) == expected
    assert (found.decided_by, found.count_field) == ("Queue", "spec.size")


def test_an_object_inside_another_one_counts_as_often_as_it_is_created() -> None:
    job = f"{{apiVersion: batch/v1, kind: Job, spec: {{parallelism: 3, completions: 6, {TEMPLATE}}}}}"
    row = "templates: [{path: spec.trial, name: \"'trial'\", workload: true, pods: '2'}]"
    (pod,) = read(row, f"{{trial: {job}}}").templates
    assert pod.path == ("spec", "trial", "spec", "template")
    assert (pod.role, pod.parallel, pod.total) == ("trial", 6, 12)


@pytest.mark.parametrize(
    ("kind", "spec", "roles", "unknown"),
    [
        ("Odd", "{parts: [{name: a, template: T}, {template: T}, 3], Other: T}", ["a", "parts", "other"], ""),
        ("Job", "{template: T}", [""], ""),
        ("Job", "{template: 3}", [], ""),
        ("Job", "{jobs: [{template: T}]}", ["jobs"], ""),
        (
            "Odd",
            "{gpus: [1, {nvidia.com/gpu: 8}]}",
            [],
            "it names nvidia.com/gpu, and Odd is no known kind of workload",
        ),
        ("Odd", "{gpus: [x, nvidia/cuda, amd.com/gpu]}", [], "it names amd.com/gpu, and Odd is no known kind of"),
        ("Job", "{gpus: nvidia.com/gpu}", [], "it names nvidia.com/gpu, and its kind has templates elsewhere"),
        ("Node", "{gpus: nvidia.com/gpu}", [], ""),
    ],
)
def test_templates_are_found_by_their_look_where_no_row_has_them(
    kind: str, spec: str, roles: list[str], unknown: str
) -> None:
    text = f"kind: {kind}\nspec: {spec.replace('T', TEMPLATE.removeprefix('template: '))}\n"
    (document,), _ = documents(text, Dialect.MANIFESTS)
    value: Any = manifest_json(document.root)
    found = read_workload(value, WorkloadTable())
    assert [each.role for each in found.templates] == roles
    assert found.unknown.startswith(unknown)
    assert bool(found.unknown) == bool(unknown)
    ours = read_workload({**value, "apiVersion": "gpurules.io/v1"}, WorkloadTable())
    assert (ours.unknown, {each.unknown for each in ours.templates} - {""}) == ("", set())


@pytest.mark.parametrize(
    ("inner", "unknown"),
    [
        ("apiVersion: x.io/v1, kind: Foo, spec: {nvidia.com/gpu: 8}", "Foo in it: it names nvidia.com/gpu"),
        (f"apiVersion: apps/v1, kind: DaemonSet, spec: {{{TEMPLATE}}}", "DaemonSet in it has a pod on each node"),
        (
            f"apiVersion: batch.volcano.sh/v1, kind: Job, spec: {{tasks: [{{replicas: 2, {TEMPLATE}}}]}}",
            "Job in it starts its pods together",
        ),
    ],
)
def test_what_is_not_known_of_an_inner_object_is_not_known_of_the_outer_one(inner: str, unknown: str) -> None:
    deployment = f"{{apiVersion: apps/v1, kind: Deployment, spec: {{{TEMPLATE}}}}}"
    row = "templates: [{path: 'spec.parts[]', workload: true}]"
    facts = read(row, f"{{parts: [{deployment}, {{{inner}}}]}}")
    assert unknown in "".join((facts.unknown, *(each.unknown for each in facts.templates)))


def test_a_template_made_of_the_whole_spec_hides_no_other() -> None:
    row = "templates: [{path: spec, pod: \"{'spec': {'containers': [{'name': 'c'}]}}\"}]"
    facts = read(row, f"{{other: {{{TEMPLATE}}}}}")
    assert [(each.path, bool(each.unknown)) for each in facts.templates] == [
        (("spec",), False),
        (("spec", "other", "template"), True),
    ]


@pytest.mark.parametrize("group", ["x" * 300, "../kinds/apps", "core", "\0"])
def test_no_group_leads_to_a_file(group: str) -> None:
    assert WorkloadTable().row(group, "Node") is None


def test_a_path_begins_in_the_object() -> None:
    assert read("templates: [{path: object}, {path: object.spec.template}]", f"{{{TEMPLATE}}}").templates[0].unknown


def test_labels_of_a_controller_are_added_to_those_of_the_template() -> None:
    row = "templates: [{path: spec.template, labels: \"{'example.com/set': object.metadata.?name.orValue('-')}\"}]"
    (template,) = read(row, "{template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}").templates
    metadata: Any = template.pod["metadata"]
    assert metadata["labels"] == {"a": "b", "example.com/set": "t"}
