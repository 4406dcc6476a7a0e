"""Run of a diff: reads the input, and decides its pods under both rule sets."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from rules_engine.difference.answer import Answer
from rules_engine.difference.grouping import Grouping
from rules_engine.difference.outcomes import Outcomes
from rules_engine.difference.reading.inputs import MAX_PROBLEMS, Inputs
from rules_engine.difference.values import Kind
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.rule_set.rule_set import cluster_requirements
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, Severity, sort_problems
from rules_engine.model.problems.source import Location

ReportProgress = Callable[[str, int, int], None]
"""A function that gets the stage, its bytes that are done, and all its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rules before or after a change: their source as the user names it, the rules, and their digest."""

    name: str
    rule_set: RuleSet
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceRun:
    """The result of a diff: its answer, None if a problem is an error, and the problems of the input in order.

    `unreported`: number of further problems.
    """

    answer: Answer | None
    problems: Sequence[Problem]
    unreported: int
    sources: Mapping[str, Sequence[str]]


class _Progress:
    """The bytes that were read in a stage."""

    def __init__(self, report: ReportProgress) -> None:
        self._report = report

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage that reads `total` bytes."""
        self._stage, self._total, self._done = stage, total, 0
        self.count(0)

    def count(self, read: int) -> None:
        """Count bytes that were just read."""
        self._done += read
        self._report(self._stage, self._done, self._total)


def run_difference(
    old: Side,
    new: Side,
    paths: Sequence[Path],
    clusters: Sequence[Path],
    default: Cluster,
    *,
    log: Path | None = None,
    default_name: str = "default",
    namespace: str = "default",
    allowed: frozenset[Kind] = frozenset(),
    report: ReportProgress = lambda _stage, _done, _total: None,
) -> DifferenceRun:
    """Decide the pods of files under both rule sets, on one or more clusters.

    `log`: a decision log. `default`: the cluster of pods if no other one is known, and `default_name` its name.
    `namespace`: for manifests without a namespace.
    """
    rule_sets = old.rule_set, new.rule_set
    reads = [*map(cluster_requirements, rule_sets)]
    progress = _Progress(report)
    collected = Problems()
    with Inputs(paths, clusters, default, collected, progress.count, log) as inputs:
        progress.begin("reading", inputs.file_bytes)
        inputs.read()
        if any(read.namespaces for read in reads):
            inputs.report_missing_namespaces()
        progress.begin("deciding", inputs.size)
        grouping = _decide_pods(old, new, inputs, namespace, usage_resources(rule_sets))
        pods = sum(totals.pods for totals in grouping.totals.values())
        if not (pods or inputs.recorded or collected.failed):
            message = "no pod and no workload found"
            if inputs.live:
                message = "no live pod found, and workloads of a cluster are decided by their pods"
            collected.error(Code.NOT_A_POD, message, Location(str(paths[0]), 1, 1))
        assumes_default = inputs.assumes_default and any(read.nodes for read in reads)
        problems = sort_problems(collected.items, inputs.files)
        answer = Answer(
            old=old.name,
            new=new.name,
            same_rules=old.digest == new.digest,
            without_rules=tuple(name for name, side in (("old", old), ("new", new)) if not side.rule_set.rules),
            assumed_cluster=default_name if assumes_default else "",
            grouping=grouping,
            recorded=inputs.recorded.totals if inputs.recorded else None,
            allowed=allowed,
        )
        return DifferenceRun(
            answer=None if collected.failed else answer,
            problems=sort_problems(sorted(problems, key=_is_warning)[:MAX_PROBLEMS], inputs.files),
            unreported=len(problems[MAX_PROBLEMS:]) + inputs.unreported,
            sources=inputs.sources,
        )


def usage_resources(rule_sets: Iterable[RuleSet]) -> Set[str] | None:
    """Return the resources whose usage these rules may read; None: any."""
    rules = [rule for rule_set in rule_sets if cluster_requirements(rule_set).pods for rule in rule_set.rules]
    # An expression that reads the cluster may read a resource whose name is in the pod.
    if any("cluster" in program.reads for rule in rules for program in (*rule.programs, *rule.messages)):
        return None
    return frozenset(name for rule in rules for name in rule.rule.interests.resources or ())


def _is_warning(problem: Problem) -> bool:
    return problem.severity is Severity.WARNING


def _decide_pods(old: Side, new: Side, inputs: Inputs, namespace: str, usage: Set[str] | None) -> Grouping:
    """Return the changes of all pods."""
    before, after = Outcomes(old.rule_set), Outcomes(new.rule_set)
    grouping = Grouping(inputs.column_names)
    for submitted, view in inputs.pods(before.mutate_request, namespace, usage):
        grouping.add(submitted, before.of(submitted, view), after.of(submitted, view))
    return grouping
