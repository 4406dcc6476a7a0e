"""The diagnosis of a cluster: its overview, its pending pods, and the findings of Diagnostics and built-in reasons."""

from collections.abc import Sequence

from rules_engine.diagnosis.diagnostic import CompiledDiagnostic, evaluate_diagnostics
from rules_engine.diagnosis.grouping import group_findings
from rules_engine.diagnosis.incomplete_offers import find_incomplete_offers
from rules_engine.diagnosis.pending import pending_pods
from rules_engine.diagnosis.refusals.never_created import find_never_created
from rules_engine.diagnosis.refusals.refused import find_refused
from rules_engine.diagnosis.scope import Scope
from rules_engine.diagnosis.sections import overview
from rules_engine.diagnosis.sections.recent_errors import recent_errors
from rules_engine.diagnosis.values import Diagnosis, Overview, PendingPod
from rules_engine.evaluation.rule_set.rule_set import RuleSet
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, DIAGNOSED_RESOURCES, ClusterObjects, NodeObject
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.rules.finding import Finding
from rules_engine.scheduling import scheduler_of


def diagnose(
    cluster: ClusterObjects,
    diagnostics: Sequence[CompiledDiagnostic],
    rule_set: RuleSet | None,
    scope: Scope,
    rules: str = "",
) -> Diagnosis:
    """Return the diagnosis of the objects of a cluster that are in a scope.

    `rule_set`: the active rules, None if they are not known; `rules`: their source, as the user wrote it.
    """
    concerns, is_listed = scope.object_filter(cluster), scope.node_filter(cluster)
    evaluation = evaluate_diagnostics(
        diagnostics,
        cluster,
        lambda item: concerns(item) or (isinstance(item, NodeObject) and is_listed(item.object_name)),
    )
    pending = pending_pods(cluster, scheduler_of(cluster), rule_set, concerns, evaluation.findings)
    blocking = {finding for each in pending for finding in each.blocking}
    in_scope, since = scope.name_filter(cluster), scope.recent_since(cluster.now)
    about_objects = (
        *find_never_created(cluster, since),
        *find_refused(cluster, since),
        *find_incomplete_offers(cluster),
        *evaluation.findings,
    )
    findings: list[tuple[Finding, Sequence[ObjectName]]] = [
        (each, (each.object,)) for each in about_objects if in_scope(each.object) or each in blocking
    ]
    findings += [(each.finding, each.pods) for each in pending]
    groups = group_findings(findings, frozenset(node.name for node in cluster.nodes))
    if scope.pod is not None:
        groups = tuple(sorted(groups, key=lambda group: group.finding not in blocking))
    return Diagnosis(
        now=cluster.now,
        scope=scope,
        objects={
            resource: len(cluster.of(kind))
            for kind, resource in DIAGNOSED_RESOURCES.items()
            if kind not in cluster.absent and (kind in API_RESOURCES or cluster.of(kind))
        },
        overview=_build_overview(cluster, scope, pending),
        findings=groups,
        not_evaluated=evaluation.not_evaluated,
        absent=overview.unread_kinds(cluster),
        rules=rules,
    )


def _build_overview(cluster: ClusterObjects, scope: Scope, pending: tuple[PendingPod, ...]) -> Overview:
    in_scope = scope.name_filter(cluster)
    pods, plugins = overview.device_pods(cluster), overview.plugin_pods(cluster)
    errors, more_errors = recent_errors(cluster, pods, plugins, in_scope, scope.recent_since(cluster.now))
    return Overview(
        nodes=overview.gpu_nodes(cluster, pods, scope.node_filter(cluster)),
        device_plugins=overview.device_plugins(cluster, plugins),
        pods=overview.gpu_pods(pods, in_scope),
        pending=pending,
        errors=errors,
        more_errors=more_errors,
    )
