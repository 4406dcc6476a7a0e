"""`test`: RuleTests, each case evaluated by both endpoints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from rules_engine.authoring.admission import Admission, admit
from rules_engine.authoring.analysis import analyse_case
from rules_engine.authoring.coverage import Coverage, Recorder
from rules_engine.authoring.mismatches import Mismatch, mismatches, outcome
from rules_engine.authoring.rule_files import (
    CompilerOf,
    ReadFiles,
    RuleFiles,
    compiled,
    has_errors,
    read_rules,
)
from rules_engine.documents import Loaded, Sources, load
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.loading import SLIPS
from rules_engine.model.admission import pod_request
from rules_engine.model.cluster import Cluster
from rules_engine.model.json.lenient import mapping, text
from rules_engine.model.problems import Problem, Severity, in_file_order
from rules_engine.model.ruletest import Case, FilePath, RuleTest


@dataclass(frozen=True, slots=True)
class CaseName:
    """The name of a case with those of its test and of its cluster, which is "" if the test has only one."""

    test: str
    case: Case
    cluster: str

    def __str__(self) -> str:
        return f"{self.test}: {self.title}"

    @property
    def title(self) -> str:
        """The names of the case and of its cluster."""
        return f"{self.case.name} [{self.cluster}]" if self.cluster else self.case.name

    @property
    def file(self) -> str:
        return self.case.location.file


class Obstacle(StrEnum):
    """A reason why a case cannot be run."""

    TEST = "the test has errors"
    RULES = "the rules have errors"
    EXPECTATION = "the expectation has errors"


@dataclass(frozen=True, slots=True)
class CaseNotRun:
    """A case that cannot be run, on one cluster."""

    name: CaseName
    obstacle: Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case that was run on one cluster."""

    name: CaseName
    admission: Admission
    mismatches: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        return not self.mismatches

    @property
    def explanation(self) -> str:
        """The mismatches, and the reasons of the decision: the outcome of each rule, a line each."""
        refusals = [decision.refusal for decision in self.admission.decisions if decision.refusal is not None]
        reasons = [
            *(f"refused: {refusal.message}" for refusal in refusals),
            *(f"{step.rule}: {outcome(step)}" for step in self.admission.trace),
        ]
        return "\n".join([*map(str, self.mismatches), "why:", *(reasons or ["no rule was evaluated"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """The results of all cases, and those not run; `deselected` counts those that do not match the keyword.

    `coverage` is None unless it was recorded, in a run without errors. pytest must not collect this class: it is not a
    test.
    """

    __test__ = False

    results: tuple[CaseResult, ...]
    problems: tuple[Problem, ...]
    sources: Sources
    not_run: tuple[CaseNotRun, ...]
    deselected: int
    coverage: Coverage | None
    references: tuple[Path, ...]
    """Files and folders that tests refer to, found or not."""

    @property
    def failures(self) -> int:
        return sum(not result.passed for result in self.results)

    @property
    def not_run_together(self) -> Iterator[tuple[CaseNotRun, int]]:
        """Yield the first of consecutive cases of a test that are not run for the same reason, and their number."""
        for _, found in groupby(self.not_run, key=lambda one: (one.name.file, one.name.test, one.obstacle)):
            first, *others = found
            yield first, 1 + len(others)

    @property
    def succeeded(self) -> bool:
        """True if at least one case was run, all passed, and no error prevented any from running."""
        return bool(self.results) and not self.failures and not has_errors(self.problems)


def run_tests(paths: Sequence[Path], keyword: str = "", *, coverage: bool = False) -> TestRun:
    """Run the cases in files and folders whose name, or whose test's name, contains `keyword`, ignoring letter case.

    A test with errors is not run, nor is one whose rules have errors, nor a case with an impossible expectation.
    Warnings of rules are reported by `check` only; those of the cases' pods are reported here too. `coverage`: it is
    recorded, for the rules of all tests and all others in `paths`.
    """
    loaded = load(paths)
    recorder = Recorder() if coverage else None
    rules = _TestedRules(loaded, recorder)
    problems = [problem for problem in loaded.problems if problem.severity is Severity.ERROR or problem.code in SLIPS]
    results: list[CaseResult] = []
    not_run = [
        CaseNotRun(name, Obstacle.TEST)
        for test in loaded.test_drafts
        for case in _selected(test, keyword)
        for name in _names(test, case)
    ]
    for test in loaded.tests:
        files = rules.of(test)
        failed = has_errors(files.rule_problems)
        for case in _selected(test, keyword):
            names = _names(test, case)
            impossible = () if failed else tuple(analyse_case(case, files.loaded.rules))
            problems.extend(impossible)
            if failed or has_errors(impossible):
                obstacle = Obstacle.RULES if failed else Obstacle.EXPECTATION
                not_run.extend(CaseNotRun(name, obstacle) for name in names)
                continue
            for name in names:
                results.append(_run(name, test.clusters.get(name.cluster, test.cluster), files.rule_set))
                if recorder is not None:
                    recorder.observe(results[-1].admission.trace, _namespace(case))
    if recorder is not None:
        untested = tuple(rule for rule in loaded.rules if rule not in recorder)
        files = compiled(replace(loaded, rules=untested, drafts=(), problems=()), recorder.compiler_of)
        problems.extend(problem for problem in files.problems if problem.severity is Severity.ERROR)
        recorder.add(files.rule_set)
    problems.extend(rules.problems)
    cases = sum(len(_names(test, case)) for test in (*loaded.test_drafts, *loaded.tests) for case in test.cases)
    return TestRun(
        results=tuple(results),
        problems=in_file_order(problems, loaded.files),
        sources={**loaded.sources, **rules.sources},
        not_run=tuple(not_run),
        deselected=cases - len(results) - len(not_run),
        coverage=None if recorder is None or has_errors(problems) else recorder.coverage,
        references=loaded.references,
    )


class _TestedRules:
    """The rules of tests, each set read once; files that are already loaded are not read again."""

    def __init__(self, loaded: Loaded, recorder: Recorder | None) -> None:
        self.loaded = loaded
        self.recorder = recorder
        self.problems: list[Problem] = []
        self.sources: dict[str, Sequence[str]] = {}
        self._files = ReadFiles(loaded.files)
        self._sets: dict[tuple[FilePath, ...], RuleFiles] = {}

    def of(self, test: RuleTest) -> RuleFiles:
        if test.rules not in self._sets:
            self._sets[test.rules] = files = self._compiled(test.rules)
            self.sources.update(files.loaded.sources)
            self.problems.extend(problem for problem in files.rule_problems if problem.severity is Severity.ERROR)
            if self.recorder is not None:
                self.recorder.add(files.rule_set)
        return self._sets[test.rules]

    def _compiled(self, paths: Sequence[FilePath]) -> RuleFiles:
        compiler_of: CompilerOf = Compiler if self.recorder is None else self.recorder.compiler_of
        # An error of the whole, such as a name that two folders use, need not be one of its parts.
        failed = has_errors([problem for problem in self.loaded.problems if problem not in self.loaded.test_problems])
        names = None if failed else self._files.among(paths)
        if names is None:
            return read_rules([Path(path) for path in paths], compiler_of)
        files = frozenset(names)
        rules = tuple(rule for rule in self.loaded.rules if rule.location.file in files)
        return compiled(replace(self.loaded, rules=rules, drafts=(), problems=()), compiler_of)


def _selected(test: RuleTest, keyword: str) -> Iterator[Case]:
    for case in test.cases:
        if keyword.casefold() in f"{test.name} {case.name}".casefold():
            yield case


def _names(test: RuleTest, case: Case) -> list[CaseName]:
    """Return the names of a case on each of its clusters; a case without an expectation has none."""
    return [CaseName(test.name, case, cluster) for cluster in case.clusters or ("",)]


def _namespace(case: Case) -> str:
    """Return the namespace in which rules see the pod of a case."""
    return text(mapping(mapping(case.pod).get("metadata")), "namespace") or case.namespace


def _run(name: CaseName, cluster: Cluster, rule_set: RuleSet) -> CaseResult:
    case = name.case
    if case.namespace_labels:
        labels = {**cluster.namespaces.get(case.namespace, {}), **case.namespace_labels}
        cluster = replace(cluster, namespaces={**cluster.namespaces, case.namespace: labels})
    request = pod_request(
        case.pod,
        namespace=case.namespace,
        operation=case.operation,
        sub_resource=case.sub_resource,
        dry_run=case.dry_run,
        old_pod=case.old_pod,
    )
    admission = admit(rule_set, request, cluster)
    return CaseResult(name=name, admission=admission, mismatches=tuple(_mismatches(name, admission)))


def _mismatches(name: CaseName, admission: Admission) -> Iterator[Mismatch]:
    for expect in name.case.expectations(name.cluster):
        yield from mismatches(expect, admission)
