"""RuleTests: their cases, and the files they refer to."""

from collections.abc import Sequence
from pathlib import Path

from rules_engine.cluster.read.amounts import read_amounts
from rules_engine.cluster.read.inventory import Inventory, build_inventory
from rules_engine.cluster.read.loader import DocumentKind, Part
from rules_engine.cluster.read.manifests import Manifest, read_single_pod
from rules_engine.cluster.read.references import References, read_cluster, read_manifests, report_conflict, resolve_path
from rules_engine.language.document_fields import document_name
from rules_engine.language.fields import (
    bool_field,
    list_items,
    map_field,
    map_items,
    map_members,
    report_repeated,
    scalar_arguments,
    scalar_members,
    string_field,
    string_items,
    string_map,
)
from rules_engine.language.yaml.nodes import MapNode, ScalarNode, YamlNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, did_you_mean
from rules_engine.model.problems.source import truncate
from rules_engine.model.rules import rule_test
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId


def read_test(root: MapNode, problems: Problems, references: References) -> rule_test.RuleTest:
    """Read the test of a document; it is valid only if neither the schema nor `problems` has an error."""
    spec = map_field(root, "spec")
    name, location, _ = document_name(root)
    folder = Path(location.file).parent
    lines = map_items(spec, "cases")
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in lines), problems)
    rules = [resolve_path(item, problems, references) for item in list_items(spec, "rules")] or [folder]
    if folder in rules:
        references.paths.setdefault(folder)
    report_conflict(spec, "cluster", "clusters", problems)
    cluster_maps = {name.source.text: node for name, node in map_members(spec, "clusters")}
    cases = tuple(_read_case(line, tuple(cluster_maps), problems, references) for line in lines)
    diagnoses = tuple(_read_diagnosis(line) for line in map_items(spec, "diagnoses"))
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in map_items(spec, "diagnoses")), problems)
    used = {cluster for case in cases for cluster in case.clusters} | (cluster_maps.keys() if diagnoses else set())
    clusters = {name: _read_cluster(node, problems, references) for name, node in cluster_maps.items()}
    own = _read_cluster(map_field(spec, "cluster"), problems, references)
    objects = {name: inventory.objects for name, inventory in clusters.items()} or {"": own.objects}
    for key, _ in map_members(spec, "clusters"):
        # A misspelt name is one problem, at the expectation.
        if key.source.text not in used and used <= cluster_maps.keys():
            message = f"no case is run on the cluster '{truncate(key.source.text)}': none has an expectation on it"
            problems.warning(Code.IGNORED_FIELD, message, key)
    return rule_test.RuleTest(
        name=name,
        location=location,
        description=string_field(spec, "description"),
        rules=tuple(rule_test.FilePath(str(path)) for path in rules if path is not None),
        cluster=own.cluster,
        clusters={name: inventory.cluster for name, inventory in clusters.items()},
        cases=cases,
        diagnoses=diagnoses,
        objects=objects if diagnoses else {},
    )


def _read_cluster(node: MapNode, problems: Problems, references: References) -> Inventory:
    cluster = read_cluster(node, problems, references)
    return cluster or build_inventory("", node.location, MapNode(location=node.location), problems)


def _read_diagnosis(line: MapNode) -> rule_test.ExpectedDiagnosis:
    name = line.get("name") or line
    reasons = {item.source.text: item.location for item in list_items(line, "reasons") if isinstance(item, ScalarNode)}
    return rule_test.ExpectedDiagnosis(
        name=string_field(line, "name"),
        location=name.location,
        expect=tuple(
            rule_test.ExpectedFinding(
                reason=string_field(each, "reason"),
                object=string_field(each, "object"),
                location=(each.get("reason") or each).location,
                **scalar_arguments(each, rule_test.ExpectedFinding),
            )
            for each in map_items(line, "expect")
        ),
        reasons=frozenset(reasons) if reasons else None,
        reason_locations=reasons,
    )


def _read_case(line: MapNode, clusters: Sequence[str], problems: Problems, references: References) -> rule_test.Case:
    name = line.get("name") or line
    request = map_field(line, "request")
    request_fields = scalar_arguments(request, rule_test.Case)
    updates = request_fields.get("operation") == "UPDATE"
    old = line.get("oldPod")
    if updates and old is None:
        place = request.key("operation") or request
        problems.error(Code.MISSING_FIELD, "operation: UPDATE needs 'oldPod'", place)
    sub_resource = request.get("subResource")
    if not updates and sub_resource is not None:
        problems.error(Code.MISSING_FIELD, "subResource: resize needs 'operation: UPDATE'", sub_resource)
    if not updates and old is not None:
        key = line.key("oldPod") or old
        problems.warning(Code.IGNORED_FIELD, "oldPod is ignored: with operation: CREATE there is no old pod", key)
    old_manifest = read_single_pod(old, line.key("oldPod") or old, problems) if old is not None else None
    manifest = _read_pod(line, problems, references)
    if manifest and manifest.namespace:
        request_fields.setdefault("namespace", manifest.namespace)
    return rule_test.Case(
        name=string_field(line, "name"),
        location=name.location,
        pod=manifest.pod if manifest else None,
        expect=_read_expectation(map_field(line, "expect"), line.key("expect") or line, problems, references),
        expect_on={
            key.source.text: _read_expectation(node, key, problems, references)
            for key, node in map_members(line, "expectOn")
        },
        clusters=_case_clusters(line, clusters, problems),
        namespace_labels=string_map(request, "namespaceLabels"),
        old_pod=old_manifest.pod if old_manifest else None,
        **request_fields,
    )


def _case_clusters(line: MapNode, cluster_names: Sequence[str], problems: Problems) -> tuple[str, ...]:
    """Return the clusters on which a case runs: all, or, without `expect`, only the clusters of `expectOn`."""
    own = [key for key, _ in map_members(line, "expectOn")]
    for key in own:
        name = key.source.text
        if not cluster_names:
            problems.error(Code.MISSING_FIELD, "expectOn needs 'clusters', which the test does not have", key)
        elif name not in cluster_names:
            message = f"cluster '{truncate(name)}' not found{did_you_mean(name, cluster_names)}"
            problems.error(Code.UNKNOWN_CLUSTER, message, key)
    if line.get("expect") is not None:
        return tuple(cluster_names) or ("",)
    return tuple(key.source.text for key in own)


def _read_pod(line: MapNode, problems: Problems, references: References) -> Manifest | None:
    pod = line.get("pod")
    if pod is not None:
        return read_single_pod(pod, line.key("pod") or pod, problems, template="")
    named = map_field(line, "podFile")
    file, name = named.get("file") or line.get("podFile"), named.get("template")
    roots = read_manifests(file, problems, references, single=True)
    template = name.source.text if isinstance(name, ScalarNode) else ""
    return read_single_pod(roots[0], name or file, problems, template) if file is not None and roots else None


def _read_expectation(
    expect: MapNode, place: YamlNode, problems: Problems, references: References
) -> rule_test.Expectation:
    report_conflict(expect, "pod", "podFile", problems)
    message = expect.key("message")
    if message is not None and bool_field(expect, "allowed"):
        conflict = "message is that of a denial: with allowed: true there is none"
        problems.error(Code.CONFLICTING_FIELDS, conflict, message)
    whole = _read_pod(expect, problems, references)
    return rule_test.Expectation(
        location=place.location,
        allowed=bool_field(expect, "allowed") if expect.get("allowed") else None,
        containers=_amounts_by_container(expect, "containers", problems),
        requests=_amounts_by_container(expect, "requests", problems),
        limits=_amounts_by_container(expect, "limits", problems),
        pod=whole.pod if whole else None,
        annotations={
            key: None if value.value is None else value.source.text
            for key, value in scalar_members(expect, "annotations")
        },
        warnings=string_items(expect, "warnings") if expect.get("warnings") else None,
        message=string_field(expect, "message") if expect.get("message") else None,
        decided_by=tuple(map(_read_decider, map_items(expect, "decidedBy"))) if expect.get("decidedBy") else None,
        audited=tuple(_read_audited(line, problems) for line in map_items(expect, "audited"))
        if expect.get("audited")
        else None,
    )


def _amounts_by_container(node: MapNode, name: str, problems: Problems) -> rule_test.AmountsByContainer:
    containers = map_field(node, name)
    return {key.source.text: read_amounts(containers, key.source.text, problems) for key, _ in containers}


def _read_decider(line: MapNode) -> rule_test.ExpectedRule:
    rule = line.get("rule") or line
    return rule_test.ExpectedRule(RuleId(string_field(line, "rule")), string_field(line, "rung") or None, rule.location)


def _read_audited(line: MapNode, problems: Problems) -> rule_test.ExpectedAudit:
    return rule_test.ExpectedAudit(
        rule=RuleId(string_field(line, "rule")),
        location=(line.get("rule") or line).location,
        action=Action(string_field(line, "action")) if line.get("action") else None,
        message=string_field(line, "message") or None,
        rung=string_field(line, "rung") or None,
        containers=_amounts_by_container(line, "containers", problems),
        annotations=string_map(line, "annotations"),
    )


TEST = DocumentKind(name="RuleTest", part=Part.TESTS, read=read_test)
