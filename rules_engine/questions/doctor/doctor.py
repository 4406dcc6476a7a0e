"""The diagnosis of a cluster: its overview, and the findings of Diagnostics and built-in reasons."""

from collections.abc import Sequence
from functools import cache, partial

from rules_engine.cluster.scheduling import scheduler_of
from rules_engine.model.kubernetes.cluster_objects import API_RESOURCES, DIAGNOSED_RESOURCES, ClusterObjects, NodeObject
from rules_engine.model.rules.finding import Certainty, FindingSeverity
from rules_engine.questions.doctor import overview
from rules_engine.questions.doctor.gpu_objects import workload_of
from rules_engine.questions.doctor.grouping import FindingGrouping
from rules_engine.questions.doctor.incomplete_offers import find_incomplete_offers
from rules_engine.questions.doctor.never_created import find_never_created, find_not_admitted
from rules_engine.questions.doctor.pending import pending_pods
from rules_engine.questions.doctor.recent_errors import recent_errors
from rules_engine.questions.doctor.refused import find_refused
from rules_engine.questions.doctor.scope import Scope
from rules_engine.questions.doctor.values import Diagnosis, FindingCounts, UnreadKind
from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic, compile_diagnostics, evaluate_diagnostics
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.rule_set.rule_set import RuleSet
from rules_engine.rules.sources.documents import DIAGNOSTIC
from rules_engine.rules.sources.load import RULES
from rules_engine.rules.sources.rule_sources import DIAGNOSTICS, load_sources


def doctor(
    cluster: ClusterObjects,
    diagnostics: Sequence[CompiledDiagnostic] | None = None,
    rule_set: RuleSet | None = None,
    scope: Scope | None = None,
    rules: str = "",
) -> Diagnosis:
    """Return the diagnosis of the objects of a cluster that are in a scope: by default, of all.

    `diagnostics`: None for the packaged ones. `rule_set`: the active rules, None if they are not known; `rules`: their
    source, as the user wrote it.

    >>> from rules_engine import doctor, load_cluster
    >>> doctor(load_cluster(["rules_engine/inventories/two-workers.yaml"])).pending_pods
    0
    """
    diagnostics = _packaged_diagnostics() if diagnostics is None else diagnostics
    scope = scope or Scope()
    in_scope, is_listed = scope.name_filter(cluster), scope.node_filter(cluster)
    evaluation = evaluate_diagnostics(
        diagnostics,
        cluster,
        lambda item: in_scope(item.object_name) or (isinstance(item, NodeObject) and is_listed(item.object_name)),
    )
    pending = pending_pods(
        cluster, scheduler_of(cluster), rule_set, lambda pod: in_scope(pod.object_name), evaluation.findings
    )
    blocking = {finding for each in pending for finding in each.blocking}
    since = scope.recent_since(cluster.now)
    about_objects = (
        *find_never_created(cluster, since),
        *find_not_admitted(cluster),
        *find_refused(cluster, since),
        *find_incomplete_offers(cluster),
        *evaluation.findings,
    )
    owner_of = partial(workload_of, cluster)
    grouping = FindingGrouping(
        frozenset(node.name for node in cluster.nodes),
        {each.diagnostic.id: each.diagnostic.caused_by for each in diagnostics},
        owner_of,
    )
    groups = grouping.group(
        (
            *(each for each in about_objects if in_scope(each.object) or each in blocking),
            *(each.finding for each in pending),
        )
    )
    if scope.pod is not None:
        first = {(finding.reason, finding.object) for finding in blocking}
        groups = tuple(sorted(groups, key=lambda group: (group.reason, group.object) not in first))
    pods, plugins = overview.device_pods(cluster), overview.plugin_pods(cluster)
    return Diagnosis(
        time=cluster.now.replace(microsecond=0) if cluster.now.timestamp() else None,
        scope=scope,
        rules=rules,
        objects={
            resource: len(cluster.of(kind))
            for kind, resource in DIAGNOSED_RESOURCES.items()
            if kind not in cluster.absent and (kind in API_RESOURCES or cluster.of(kind))
        },
        not_read=tuple(
            UnreadKind(objects=unread, unknown=overview.UNKNOWN_FACTS[kind])
            for kind in DIAGNOSED_RESOURCES
            if (unread := cluster.unread(kind))
        ),
        counts=FindingCounts(
            **{level.lower(): sum(each.severity is level for each in groups) for level in FindingSeverity},
            possible=sum(each.certainty is Certainty.POSSIBLE for each in groups),
        ),
        pending_pods=len(pending),
        findings=groups,
        nodes=overview.gpu_nodes(cluster, is_listed),
        device_plugins=overview.device_plugins(cluster, plugins),
        pods=overview.gpu_pods(pods, in_scope),
        errors=recent_errors(cluster, pods, plugins, in_scope, since, owner_of),
        not_evaluated=evaluation.not_evaluated,
    )


@cache
def _packaged_diagnostics() -> tuple[CompiledDiagnostic, ...]:
    files = load_sources((DIAGNOSTICS,), (*RULES, DIAGNOSTIC))
    return compile_diagnostics(files.loaded.of(Diagnostic))[0]
