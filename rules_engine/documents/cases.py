"""RuleTests: their cases, and the files they refer to."""

from collections.abc import Sequence
from pathlib import Path

from rules_engine.documents.document_kind import DocumentKind, Part
from rules_engine.documents.references import (
    Inventory,
    References,
    existing,
    inventory,
    read_cluster,
    read_manifests,
    report_both,
)
from rules_engine.loading.fields import (
    flag,
    items,
    maps,
    report_repeated,
    scalars,
    section,
    sections,
    settings,
    strings,
    text,
    texts,
)
from rules_engine.loading.kubernetes.amounts import amounts
from rules_engine.loading.kubernetes.manifests import Manifest, the_pod
from rules_engine.loading.rule_fields import name_of
from rules_engine.loading.yaml.nodes import MapNode, Node, ScalarNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.excerpt import truncate
from rules_engine.model.problems.problem import Problems, did_you_mean
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.rules.rule_test import (
    AmountsByContainer,
    Audited,
    Case,
    Decider,
    Diagnosis,
    Expectation,
    ExpectedFinding,
    FilePath,
    RuleTest,
)


def read_test(root: MapNode, problems: Problems, references: References) -> RuleTest:
    """Read the test of a document; it is valid only if neither the schema nor `problems` has an error."""
    spec = section(root, "spec")
    name, location, _ = name_of(root)
    folder = Path(location.file).parent
    lines = sections(spec, "cases")
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in lines), problems)
    rules = [existing(item, folder, problems, references) for item in items(spec, "rules")] or [folder]
    if folder in rules:
        references.refer(folder)
    report_both(spec, "cluster", "clusters", problems)
    cluster_maps = {name.source.text: node for name, node in maps(spec, "clusters")}
    cases = tuple(_case(line, tuple(cluster_maps), folder, problems, references) for line in lines)
    diagnoses = tuple(_diagnosis(line) for line in sections(spec, "diagnoses"))
    report_repeated(Code.DUPLICATE_NAME, (line.get("name") for line in sections(spec, "diagnoses")), problems)
    used = {cluster for case in cases for cluster in case.clusters} | (cluster_maps.keys() if diagnoses else set())
    clusters = {name: _cluster(node, folder, problems, references) for name, node in cluster_maps.items()}
    own = _cluster(section(spec, "cluster"), folder, problems, references)
    objects = {name: inventory.objects for name, inventory in clusters.items()} or {"": own.objects}
    for key, _ in maps(spec, "clusters"):
        # A misspelt name is one problem, at the expectation.
        if key.source.text not in used and used <= cluster_maps.keys():
            message = f"no case is run on the cluster '{truncate(key.source.text)}': none has an expectation on it"
            problems.warning(Code.IGNORED_FIELD, message, key.location, key.length)
    return RuleTest(
        name=name,
        location=location,
        rules=tuple(FilePath(str(path)) for path in rules if path is not None),
        cluster=own.cluster,
        clusters={name: inventory.cluster for name, inventory in clusters.items()},
        cases=cases,
        diagnoses=diagnoses,
        objects=objects if diagnoses else {},
    )


def _cluster(node: MapNode, folder: Path, problems: Problems, references: References) -> Inventory:
    cluster = read_cluster(node, folder, problems, references)
    return cluster or inventory("", node.location, MapNode(location=node.location), problems)


def _diagnosis(line: MapNode) -> Diagnosis:
    name = line.get("name") or line
    reasons = {item.source.text: item.location for item in items(line, "reasons") if isinstance(item, ScalarNode)}
    return Diagnosis(
        name=text(line, "name"),
        location=name.location,
        expect=tuple(map(_finding, sections(line, "expect"))),
        reasons=frozenset(reasons) if reasons else None,
        reason_locations=reasons,
    )


def _finding(line: MapNode) -> ExpectedFinding:
    reason = line.get("reason") or line
    return ExpectedFinding(
        reason=text(line, "reason"),
        object=text(line, "object"),
        location=reason.location,
        **settings(line, ExpectedFinding),
    )


def _case(line: MapNode, clusters: Sequence[str], folder: Path, problems: Problems, references: References) -> Case:
    name = line.get("name") or line
    request = section(line, "request")
    request_fields = settings(request, Case)
    updates = request_fields.get("operation") == "UPDATE"
    old = line.get("oldPod")
    if updates and old is None:
        place = request.key("operation") or request
        problems.error(Code.MISSING_FIELD, "operation: UPDATE needs 'oldPod'", place.location, place.length)
    sub_resource = request.get("subResource")
    if not updates and sub_resource is not None:
        message = "subResource: resize needs 'operation: UPDATE'"
        problems.error(Code.MISSING_FIELD, message, sub_resource.location, sub_resource.length)
    if not updates and old is not None:
        key = line.key("oldPod") or old
        message = "oldPod is ignored: with operation: CREATE there is no old pod"
        problems.warning(Code.IGNORED_FIELD, message, key.location, key.length)
    old_manifest = the_pod(old, line.key("oldPod") or old, problems) if old is not None else None
    manifest = _pod(line, folder, problems, references)
    if manifest and manifest.namespace:
        request_fields.setdefault("namespace", manifest.namespace)
    return Case(
        name=text(line, "name"),
        location=name.location,
        pod=manifest.pod if manifest else None,
        expect=_expectation(section(line, "expect"), line.key("expect") or line, folder, problems, references),
        expect_on={
            key.source.text: _expectation(node, key, folder, problems, references)
            for key, node in maps(line, "expectOn")
        },
        clusters=_clusters_of(line, clusters, problems),
        namespace_labels=strings(request, "namespaceLabels"),
        old_pod=old_manifest.pod if old_manifest else None,
        **request_fields,
    )


def _clusters_of(line: MapNode, cluster_names: Sequence[str], problems: Problems) -> tuple[str, ...]:
    """Return the clusters on which a case runs: all, or, without `expect`, only the clusters of `expectOn`."""
    own = [key for key, _ in maps(line, "expectOn")]
    for key in own:
        name = key.source.text
        if not cluster_names:
            message = "expectOn needs 'clusters', which the test does not have"
            problems.error(Code.MISSING_FIELD, message, key.location, key.length)
        elif name not in cluster_names:
            message = f"cluster '{truncate(name)}' not found{did_you_mean(name, cluster_names)}"
            problems.error(Code.UNKNOWN_CLUSTER, message, key.location, key.length)
    if line.get("expect") is not None:
        return tuple(cluster_names) or ("",)
    return tuple(key.source.text for key in own)


def _pod(line: MapNode, folder: Path, problems: Problems, references: References) -> Manifest | None:
    pod = line.get("pod")
    if pod is not None:
        return the_pod(pod, line.key("pod") or pod, problems)
    file = line.get("podFile")
    roots = read_manifests(file, folder, problems, references, single=True)
    return the_pod(roots[0], file, problems) if file is not None and roots else None


def _expectation(expect: MapNode, place: Node, folder: Path, problems: Problems, references: References) -> Expectation:
    report_both(expect, "pod", "podFile", problems)
    message = expect.key("message")
    if message is not None and flag(expect, "allowed"):
        conflict = "message is that of a denial: with allowed: true there is none"
        problems.error(Code.CONFLICTING_FIELDS, conflict, message.location, message.length)
    whole = _pod(expect, folder, problems, references)
    return Expectation(
        location=place.location,
        allowed=flag(expect, "allowed") if expect.get("allowed") else None,
        containers=_by_container(expect, "containers", problems),
        requests=_by_container(expect, "requests", problems),
        limits=_by_container(expect, "limits", problems),
        pod=whole.pod if whole else None,
        annotations={
            key: None if value.value is None else value.source.text for key, value in scalars(expect, "annotations")
        },
        warnings=texts(expect, "warnings") if expect.get("warnings") else None,
        message=text(expect, "message") if expect.get("message") else None,
        decided_by=tuple(map(_decider, sections(expect, "decidedBy"))) if expect.get("decidedBy") else None,
        audited=tuple(_audited(line, problems) for line in sections(expect, "audited"))
        if expect.get("audited")
        else None,
    )


def _by_container(node: MapNode, name: str, problems: Problems) -> AmountsByContainer:
    containers = section(node, name)
    return {key.source.text: amounts(containers, key.source.text, problems) for key, _ in containers}


def _decider(line: MapNode) -> Decider:
    rule = line.get("rule") or line
    return Decider(RuleId(text(line, "rule")), text(line, "rung") or None, rule.location)


def _audited(line: MapNode, problems: Problems) -> Audited:
    return Audited(
        rule=RuleId(text(line, "rule")),
        location=(line.get("rule") or line).location,
        action=Action(text(line, "action")) if line.get("action") else None,
        message=text(line, "message") or None,
        rung=text(line, "rung") or None,
        containers=_by_container(line, "containers", problems),
        annotations=strings(line, "annotations"),
    )


TEST = DocumentKind(name="RuleTest", part=Part.TESTS, read=read_test)
