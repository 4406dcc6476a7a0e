"""Run of a diff: reads the input, and decides its pods under both rule sets in several processes."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from mmap import mmap
from pathlib import Path

from rules_engine.difference.answer import ActiveRules, Answer
from rules_engine.difference.grouping import Grouping, RecordedTotals
from rules_engine.difference.outcomes import Outcomes
from rules_engine.difference.processes import end_without_parent, run_in_processes
from rules_engine.difference.reading.inputs import MAX_PROBLEMS, Inputs
from rules_engine.difference.reading.recorded_input import RecordedSide, Replay
from rules_engine.difference.reading.share import Share
from rules_engine.difference.values import Kind
from rules_engine.evaluation import RuleSet
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, Severity, sort_problems
from rules_engine.model.problems.source import Location
from rules_engine.recording.views import ViewFields

DEFAULT_PROCESSES = 4
"""Largest default number of processes: each takes up to 100 MiB of memory of its own."""

SMALL_BYTES = 8 * 1024 * 1024
"""Size of input from which several processes are the default: some 1,500 pods."""

_COUNTER_BYTES = 8

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


@dataclass(frozen=True, slots=True)
class _Part:
    """The results of one process."""

    grouping: Grouping
    recorded: RecordedTotals
    problems: Sequence[Problem]
    unreported: int
    sources: Mapping[str, Sequence[str]]


class _Progress:
    """The bytes that were read, counted in memory that processes share."""

    def __init__(self, report: ReportProgress) -> None:
        self._report = report
        self._counts = _allocate_counters(1)
        self._process = 0
        self._parent = os.getpid()
        self._forked = False
        self._stage = ""
        self._total = 0

    def begin(self, stage: str, total: int, processes: int = 1) -> None:
        """Begin a stage that reads `total` bytes."""
        self._stage, self._total = stage, total
        self._counts = _allocate_counters(processes)
        self.show()

    def fork(self, process: int) -> None:
        """Count in a forked process, which shows nothing and ends without its parent."""
        self._process = process
        self._forked = True

    def count(self, read: int) -> None:
        """Count bytes that were just read."""
        self._counts[self._process] += read
        if self._forked:
            end_without_parent(self._parent)
        else:
            self.show()

    def show(self) -> None:
        """Report the bytes of all processes."""
        self._report(self._stage, sum(self._counts), self._total)


def _allocate_counters(processes: int) -> "memoryview[int]":
    """Return a counter for each process, in memory that forked processes share."""
    return memoryview(mmap(-1, _COUNTER_BYTES * processes)).cast("Q")


def run_difference(
    old: Side,
    new: Side,
    paths: Sequence[Path],
    clusters: Sequence[Path],
    default: Cluster,
    *,
    default_name: str = "default",
    namespace: str = "default",
    processes: int | None = None,
    allowed: frozenset[Kind] = frozenset(),
    active_rules: ActiveRules | None = None,
    report: ReportProgress = lambda _stage, _done, _total: None,
) -> DifferenceRun:
    """Decide the pods of files under both rule sets, on one or more clusters.

    `default`: the cluster of pods if no other one is known, and `default_name` its name. `namespace`: for manifests
    without a namespace. `processes`: by default, one for each core if the input is large; the answer does not depend on
    it. Raises ProcessError.
    """
    views = [ViewFields.of(side.rule_set) for side in (old, new)]
    usage = _usage_resources(views)
    progress = _Progress(report)
    collected = Problems()
    with Inputs(paths, clusters, default, collected, progress.count) as inputs:
        progress.begin("reading", inputs.file_bytes)
        inputs.read()
        if any(view.reads.namespaces for view in views):
            inputs.report_missing_namespaces()
        count = processes or _default_processes(inputs.size())
        progress.begin("deciding", inputs.size(count), count)
        input_problems = len(collected.items)

        def work(process: int) -> _Part:
            if count > 1:
                progress.fork(process)
            grouping, recorded = _decide_share(old, new, inputs, namespace, Share(process, count), usage)
            return _Part(grouping, recorded, collected.items[input_problems:], inputs.unreported, inputs.sources)

        parts = run_in_processes(count, work, progress.show) if count > 1 else [work(0)]
        grouping = parts[0].grouping
        for part in parts[1:]:
            grouping.merge(part.grouping)
        grouping.leave_out()
        recorded = inputs.recorded.totals
        for part in parts:
            recorded.merge(part.recorded)
        sources = {name: lines for part in parts for name, lines in part.sources.items()}
        collected.items[input_problems:] = [problem for part in parts for problem in part.problems]
        pods = sum(totals.pods for totals in grouping.totals.values())
        if not (pods or inputs.recorded.files or collected.failed):
            message = "no pod and no workload found"
            if inputs.live:
                message = "no live pod found, and workloads of a cluster are decided by their pods"
            collected.error(Code.NOT_A_POD, message, Location(str(paths[0]), 1, 1))
        assumes_default = inputs.assumes_default and any(view.reads.nodes for view in views)
        problems = sort_problems(collected.items, inputs.files)
        answer = Answer(
            old=old.name,
            new=new.name,
            same_rules=old.digest == new.digest,
            without_rules=tuple(name for name, side in (("old", old), ("new", new)) if not side.rule_set.rules),
            active_rules=active_rules,
            assumed_cluster=default_name if assumes_default else "",
            grouping=grouping,
            recorded=recorded if inputs.recorded.files else None,
            allowed=allowed,
        )
        return DifferenceRun(
            answer=None if collected.failed else answer,
            problems=sort_problems(sorted(problems, key=_is_warning)[:MAX_PROBLEMS], inputs.files),
            unreported=len(problems[MAX_PROBLEMS:]) + sum(part.unreported for part in parts),
            sources=sources,
        )


def _usage_resources(views: Iterable[ViewFields]) -> Set[str] | None:
    """Return the resources whose usage the rules of either side read; None: any."""
    read = [view.resources for view in views if view.reads.pods]
    return None if None in read else frozenset[str]().union(*filter(None, read))


def _is_warning(problem: Problem) -> bool:
    return problem.severity is Severity.WARNING


def _default_processes(size: int) -> int:
    """Return the number of processes for an input of a size in bytes."""
    return 1 if size < SMALL_BYTES else min(_usable_cores(), DEFAULT_PROCESSES)


def _usable_cores() -> int:
    """Return the number of cores that this process may use."""
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _decide_share(
    old: Side, new: Side, inputs: Inputs, namespace: str, share: Share, usage: Set[str] | None
) -> tuple[Grouping, RecordedTotals]:
    """Return the changes of the pods of a share, and the totals of its recorded admissions."""
    before, after = Outcomes(old.rule_set), Outcomes(new.rule_set)
    grouping, recorded = Grouping(inputs.column_names), RecordedTotals()
    replay = Replay(
        sides=[RecordedSide.of(option, side.rule_set) for option, side in (("--old", old), ("--new", new))],
        decide=before.decision,
        digest=old.digest,
        column=inputs.recorded_column,
    )
    for submitted, view in chain(
        inputs.pods(before.mutate_request, namespace, share, usage),
        inputs.admissions(replay, recorded, share),
    ):
        grouping.add(submitted, before.of(submitted, view), after.of(submitted, view), share.position)
    return grouping, recorded
