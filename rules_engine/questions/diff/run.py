"""Run of a diff: reads the input, and decides its pods under both rule sets."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rules_engine.cluster.read.clusters import ClusterReading, read_cluster, reading_of
from rules_engine.language.files import each_of
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, unknown_pods
from rules_engine.model.problems.source import Location
from rules_engine.questions.diff.answer import DifferenceAnswer, build_answer
from rules_engine.questions.diff.comparison import WorkloadChanges
from rules_engine.questions.diff.input.inputs import DiffInputs
from rules_engine.questions.diff.input.views import extended_claim
from rules_engine.questions.diff.outcomes import Outcomes
from rules_engine.questions.diff.values import Kind
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.rule_set.rule_set import cluster_requirements
from rules_engine.rules.sources.rule_files import DEFAULT_CLUSTER

ReportProgress = Callable[[str, int, int], None]
"""A function that gets the stage, its pods that are done, and all its pods; 0 if that is not known."""

NO_LIVE_POD = "no live pod found: give the pods with -f or --from-log"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesSide:
    """The rules before or after a change: their source as the user names it, the rules, and their digest."""

    name: str
    rule_set: RuleSet
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRun:
    """The result of a diff: its answer, None if a problem is an error, and the problems of the input in order."""

    answer: DifferenceAnswer | None
    problems: Sequence[Problem]
    sources: Mapping[str, Sequence[str]]


def diff(
    old: RulesSide | RuleSet,
    new: RulesSide | RuleSet,
    *,
    manifests: Iterable[str | Path] = (),
    log: Path | None = None,
    clusters: Iterable[ClusterReading | ClusterObjects] = (),
    namespace: str = "default",
    allowed: frozenset[Kind] = frozenset(),
    report: ReportProgress = lambda _stage, _done, _total: None,
) -> DifferenceRun:
    """Decide the pods of files under both rule sets, on each cluster; without files, its own live pods.

    Raises ValueError without any pods. `manifests`: files and folders. `log`: a decision log. `clusters`: by default,
    the packaged one with two workers. `namespace`: for manifests without a namespace.

    >>> from rules_engine import diff, load_rules
    >>> old, new = load_rules(["set:gpu-allocation"]), load_rules(["set:gpu-allocation"])
    >>> diff(old, new, manifests=["examples/python/pod.yaml"]).answer.verdict
    <Verdict.UNCHANGED: 'Unchanged'>
    """
    old, new = _side(old, "old"), _side(new, "new")
    paths, readings = [Path(path) for path in each_of(manifests)], [*map(reading_of, clusters)]
    if not (paths or readings or log):
        raise ValueError("there are no pods to decide: give manifests, clusters or a log")
    default = read_cluster([DEFAULT_CLUSTER]).cluster
    assert default is not None  # noqa: S101 - a packaged file
    reads = [cluster_requirements(side.rule_set) for side in (old, new)]
    collected = Problems()
    kinds = (*new.rule_set.workload_kinds, *old.rule_set.workload_kinds)
    inputs = DiffInputs(paths, log, readings, default, collected, kinds)
    grouping = WorkloadChanges(inputs.columns)
    if not collected.failed:
        _report_missing_objects(readings, collected, reads_namespaces=any(read.namespaces for read in reads))
        _decide_pods(old, new, inputs, namespace, grouping, report)
    decided = any(totals.decided for totals in grouping.totals.values())
    unknown = bool(unknown_pods(collected.items))
    if not (decided or log or unknown or collected.failed):
        where = [Location(str(path), 1, 1) for path in paths] or [reading.location for reading in readings]
        message = "no pod and no workload found" if paths else NO_LIVE_POD
        collected.error(Code.NOT_A_POD, message, where[0])
    sides: Mapping[Literal["old", "new"], RulesSide] = {"old": old, "new": new}
    answer = build_answer(
        grouping,
        old=old.name,
        new=new.name,
        same_rules=old.digest == new.digest,
        without_rules=[name for name, side in sides.items() if not side.rule_set.rules],
        assumed_cluster=DEFAULT_CLUSTER.stem if not readings and any(read.nodes for read in reads) else None,
        recorded=inputs.recorded.totals if inputs.recorded else None,
        allowed=allowed,
        unknown=unknown,
    )
    return DifferenceRun(
        answer=None if collected.failed else answer,
        problems=collected.items,
        sources=inputs.sources,
    )


def _side(rules: RulesSide | RuleSet, name: str) -> RulesSide:
    return rules if isinstance(rules, RulesSide) else RulesSide(name=name, rule_set=rules, digest=str(id(rules)))


def _report_missing_objects(clusters: Iterable[ClusterReading], problems: Problems, *, reads_namespaces: bool) -> None:
    """Warn of clusters without objects that decisions depend on."""
    for objects, location in [(each.objects, each.location) for each in clusters if each.objects is not None]:
        if reads_namespaces and not objects.view.namespaces_complete:
            message = "no Namespace found: rules that read labels of namespaces fail"
            problems.warning(Code.UNREAD_OBJECT, message, location)
        if objects.nodes and not objects.of("DeviceClass") and any(map(extended_claim, objects.pods)):
            message = "pods have devices of drivers, but there is no DeviceClass: nodes seem not to offer them"
            problems.warning(Code.UNREAD_OBJECT, message, location)


def usage_resources(rule_sets: Iterable[RuleSet]) -> Set[str] | None:
    """Return the resources whose usage these rules may read; None: any."""
    rules = [rule for rule_set in rule_sets if cluster_requirements(rule_set).pods for rule in rule_set.rules]
    # An expression that reads the cluster may read a resource whose name is in the pod.
    if any("cluster" in program.reads for rule in rules for program in (*rule.programs, *rule.messages)):
        return None
    return frozenset(name for rule in rules for name in rule.rule.interests.resources or ())


def _decide_pods(
    old: RulesSide,
    new: RulesSide,
    inputs: DiffInputs,
    namespace: str,
    grouping: WorkloadChanges,
    report: ReportProgress,
) -> None:
    """Add the changes of all pods."""
    before, after = Outcomes(old.rule_set), Outcomes(new.rule_set)
    usage = usage_resources((old.rule_set, new.rule_set))
    writes = {path for compiled in old.rule_set.rules for path in compiled.rule.interests.writes}
    pods = inputs.pods(before.mutate_request, namespace, usage, writes)
    for done, (submitted, view) in enumerate(pods, start=1):
        grouping.add(submitted, before.of(submitted, view), after.of(submitted, view))
        report("deciding", done, inputs.live_pods)
