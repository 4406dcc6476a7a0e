"""`test`: RuleTests, each case evaluated by both endpoints."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta, structs

from rules_engine.authoring.check.analysis import analyse_case, analyse_diagnosis
from rules_engine.authoring.check.check import read_test_rules
from rules_engine.authoring.test.coverage import Coverage, CoverageRecorder
from rules_engine.authoring.test.mismatches import Mismatch, admission_mismatches, diagnosis_mismatches, step_outcome
from rules_engine.cluster.read.loader import LoadResult, Part
from rules_engine.cluster.read.pods import SLIPS
from rules_engine.cluster.read.references import Sources
from rules_engine.language.files import each_of
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.output import Output
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.problems.problem import Problem, Severity, sort_problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.logged_decision import LoggedDecision
from rules_engine.model.rules.rule_test import Case, ExpectedDiagnosis, FilePath, RuleTest
from rules_engine.report.answer import Answer
from rules_engine.rules.diagnostic.evaluation import (
    CompiledDiagnostic,
    compile_diagnostics,
    diagnostic_compiler,
    evaluate_diagnostics,
)
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.admission import Admission, admit_pod
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.sources.documents import load_documents
from rules_engine.rules.sources.rule_files import CompilerOf, LoadedFiles, RuleFiles, compile_loaded, has_errors

MAX_SHOWN = 20
"""Findings listed in the explanation of a failed diagnosis."""


class Obstacle(StrEnum):
    """A reason why a case cannot be run."""

    TEST = "the test has errors"
    RULES = "the rules have errors"
    DIAGNOSTICS = "the Diagnostics have errors"
    EXPECTATION = "the expectation has errors"


class CaseName(Output, frozen=True, kw_only=True):
    """A case, or a diagnosis, on one cluster."""

    test: Annotated[str, Meta(description="Name of the RuleTest.")]
    case: Annotated[str, Meta(description="Name of the case.")]
    cluster: Annotated[str, Meta(description='Name of the cluster; "" if the test has only one.')]
    source: Annotated[Location, Meta(description="Of the name of the case.")]

    def __str__(self) -> str:
        return f"{self.test}: {self.title}"

    @property
    def title(self) -> str:
        """The names of the case and of its cluster."""
        return f"{self.case} [{self.cluster}]" if self.cluster else self.case


class CaseNotRun(CaseName, frozen=True, kw_only=True):
    """A case that cannot be run, on one cluster."""

    reason: Obstacle


class FoundFinding(Output, frozen=True, kw_only=True):
    """A finding of a diagnosis."""

    reason: str
    object: ObjectName
    message: str


class CaseResult(CaseName, frozen=True, kw_only=True):
    """A case, or a diagnosis, that was run on one cluster."""

    passed: bool
    mismatches: tuple[Mismatch, ...]
    mutation: Annotated[LoggedDecision | None, Meta(description="Null: a diagnosis.")] = None
    validation: Annotated[
        LoggedDecision | None, Meta(description="Null: a diagnosis, or the mutation denied the pod.")
    ] = None
    findings: Annotated[tuple[FoundFinding, ...] | None, Meta(description="Null: not a diagnosis.")] = None

    @property
    def explanation(self) -> str:
        """The mismatches and their reasons, a line each: the outcome of each rule, or the findings."""
        if self.findings is not None:
            reasons = [f"{each.reason} of {each.object}: {each.message}" for each in self.findings[:MAX_SHOWN]]
            return "\n".join([*map(str, self.mismatches), "found:", *(reasons or ["nothing"])])
        decisions = [decision for decision in (self.mutation, self.validation) if decision is not None]
        reasons = [
            *(f"refused: {decision.refused}" for decision in decisions if decision.refused),
            *(f"{step.rule}: {step_outcome(step)}" for decision in decisions for step in decision.trace),
        ]
        return "\n".join([*map(str, self.mismatches), "why:", *(reasons or ["no rule was evaluated"])])


class TestAnswer(Answer, frozen=True, kw_only=True):
    """The results of RuleTests."""

    __test__ = False  # its name begins like a test class, but pytest must not collect it

    succeeded: Annotated[bool, Meta(description="A case was run, all passed, and no error prevented any.")]
    passed: Annotated[int, Meta(description="Cases, each once for each of its clusters.")]
    failed: int
    not_run: Annotated[int, Meta(description="Cases that errors prevented.")]
    deselected: Annotated[int, Meta(description="Cases that -k excludes.")]
    cases: tuple[CaseResult, ...]
    cases_not_run: Annotated[tuple[CaseNotRun, ...], Meta(description="Cases that were not run.")]
    coverage: Annotated[Coverage | None, Meta(description="Null: not measured, or there are errors.")]

    @property
    def not_run_groups(self) -> Iterator[tuple[CaseNotRun, int]]:
        """Yield the first of consecutive cases of a test that have the same obstacle, and their number."""
        for _, group in groupby(self.cases_not_run, key=lambda case: (case.source.file, case.test, case.reason)):
            first, *others = group
            yield first, 1 + len(others)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """The results of cases, and the lines of files."""

    __test__ = False

    answer: TestAnswer
    sources: Sources
    references: tuple[Path, ...]
    """Files and folders that tests refer to, even if they do not exist."""


def run_tests(paths: Iterable[str | Path], keyword: str = "", *, coverage: bool = False) -> TestRun:
    """Run the cases in files and folders whose name, or whose test's name, contains `keyword`, ignoring letter case.

    A test with errors or whose rules have errors is not run, nor is a case with an impossible expectation. Warnings
    about rules are reported by `check` only, warnings about pods of cases here too. `coverage`: record it, for the
    rules of all tests and all other rules in `paths`.

    >>> from rules_engine import run_tests
    >>> run_tests(["rules_engine/rule_sets/gpu-allocation"]).answer.succeeded
    True
    """
    files = [Path(path) for path in each_of(paths)]
    loaded = load_documents(files)
    recorder = CoverageRecorder() if coverage else None
    rules = _TestedRules(loaded, recorder)
    problems = [problem for problem in loaded.problems if problem.severity is Severity.ERROR or problem.code in SLIPS]
    outcomes: list[CaseResult | CaseNotRun] = [
        _not_run(name, Obstacle.TEST)
        for test in loaded.of(RuleTest, valid=False)
        for case in _select_cases(test, test.cases + test.diagnoses, keyword)
        for name in _case_names(test, case)
    ]
    for test in loaded.tests:
        outcomes += (*_run_cases(test, keyword, rules), *_run_diagnoses(test, keyword, rules))
    if recorder is not None:
        untested = tuple(rule for rule in loaded.rules if rule not in recorder)
        rule_set, rule_problems = compile_rules(untested, compiler_of=recorder.compiler_of)
        problems.extend(problem for problem in rule_problems if problem.severity is Severity.ERROR)
        recorder.add(rule_set)
        others = [diagnostic for diagnostic in loaded.of(Diagnostic) if diagnostic not in recorder]
        diagnostics, diagnostic_problems = compile_diagnostics(others, recorder.diagnostic_compiler_of)
        problems.extend(problem for problem in diagnostic_problems if problem.severity is Severity.ERROR)
        recorder.add_diagnostics(diagnostics)
    problems.extend(rules.problems)
    every_test = (*loaded.of(RuleTest, valid=False), *loaded.tests)
    cases = sum(len(_case_names(test, case)) for test in every_test for case in test.cases + test.diagnoses)
    results = tuple(each for each in outcomes if isinstance(each, CaseResult))
    not_run = tuple(each for each in outcomes if isinstance(each, CaseNotRun))
    failed = sum(not result.passed for result in results)
    answer = TestAnswer(
        problems=sort_problems(problems, loaded.files),
        succeeded=bool(results) and not failed and not has_errors(problems),
        passed=len(results) - failed,
        failed=failed,
        not_run=len(not_run),
        deselected=cases - len(results) - len(not_run),
        cases=results,
        cases_not_run=not_run,
        coverage=None if recorder is None or has_errors(problems) else recorder.coverage,
    )
    return TestRun(answer=answer, sources={**loaded.sources, **rules.sources}, references=loaded.references)


class _TestedRules:
    """The rules of tests: each combination of files is compiled once, and loaded files are not read again."""

    def __init__(self, loaded: LoadResult, recorder: CoverageRecorder | None) -> None:
        self.loaded = loaded
        self.recorder = recorder
        self.problems: list[Problem] = []
        self.sources: dict[str, Sequence[str]] = {}
        self._files = LoadedFiles(loaded.files)
        self._sets: dict[tuple[FilePath, ...], RuleFiles] = {}
        self._diagnostics: dict[tuple[FilePath, ...], tuple[CompiledDiagnostic, ...] | None] = {}

    def of(self, test: RuleTest) -> RuleFiles:
        if test.rules not in self._sets:
            self._sets[test.rules] = files = self._compile(test.rules)
            self.sources.update(files.loaded.sources)
            self.problems.extend(problem for problem in files.rule_problems if problem.severity is Severity.ERROR)
            if self.recorder is not None:
                self.recorder.add(files.rule_set)
        return self._sets[test.rules]

    def diagnostics_of(self, test: RuleTest) -> tuple[CompiledDiagnostic, ...] | None:
        """Return the Diagnostics of a test; None if one of them has an error."""
        if test.rules not in self._diagnostics:
            loaded = self.of(test).loaded
            compiler_of = diagnostic_compiler if self.recorder is None else self.recorder.diagnostic_compiler_of
            diagnostics, problems = compile_diagnostics(loaded.of(Diagnostic), compiler_of)
            all_problems = (*loaded.problems_of(Part.DIAGNOSTICS), *problems)
            errors = [problem for problem in all_problems if problem.severity is Severity.ERROR]
            self.problems.extend(errors)
            if self.recorder is not None:
                self.recorder.add_diagnostics(diagnostics)
            self._diagnostics[test.rules] = None if errors else diagnostics
        return self._diagnostics[test.rules]

    def _compile(self, paths: Sequence[FilePath]) -> RuleFiles:
        compiler_of: CompilerOf = Compiler if self.recorder is None else self.recorder.compiler_of
        # With errors, read again: an error of all files, such as a name used twice, may not be an error of these files.
        failed = has_errors(self.loaded.problems_of(Part.RULES, Part.DIAGNOSTICS))
        names = None if failed else self._files.names_of(paths)
        if names is None:
            return read_test_rules(paths, compiler_of)
        documents = tuple(document for document in self.loaded.documents if document.location.file in names)
        return compile_loaded(replace(self.loaded, documents=documents, by_part={}), compiler_of)


AnyCase = TypeVar("AnyCase", bound=Case | ExpectedDiagnosis)


def _select_cases(test: RuleTest, cases: Sequence[AnyCase], keyword: str) -> Iterator[AnyCase]:
    for case in cases:
        if keyword.casefold() in f"{test.name} {case.name}".casefold():
            yield case


def _case_names(test: RuleTest, case: Case | ExpectedDiagnosis) -> list[CaseName]:
    clusters = case.clusters if isinstance(case, Case) else tuple(test.objects)
    return [
        CaseName(test=test.name, case=case.name, cluster=cluster, source=case.location) for cluster in clusters or ("",)
    ]


def _not_run(name: CaseName, reason: Obstacle) -> CaseNotRun:
    return CaseNotRun(**structs.asdict(name), reason=reason)


def _run_cases(test: RuleTest, keyword: str, rules: _TestedRules) -> Iterator[CaseResult | CaseNotRun]:
    """Run the cases of a test, and add their problems to the rules' problems."""
    files = rules.of(test)
    unusable = has_errors(files.rule_problems)
    for case in _select_cases(test, test.cases, keyword):
        impossible = () if unusable else tuple(analyse_case(case, files.loaded.rules))
        rules.problems.extend(impossible)
        for name in _case_names(test, case):
            if unusable or has_errors(impossible):
                yield _not_run(name, Obstacle.RULES if unusable else Obstacle.EXPECTATION)
                continue
            admission = _admit_case(case, test.clusters.get(name.cluster, test.cluster), files.rule_set)
            yield _case_result(name, case, admission)
            if rules.recorder is not None:
                own = text_member(as_mapping(as_mapping(case.pod).get("metadata")), "namespace")
                rules.recorder.observe(admission.trace, own or case.namespace)


def _run_diagnoses(test: RuleTest, keyword: str, rules: _TestedRules) -> Iterator[CaseResult | CaseNotRun]:
    """Run the diagnoses of a test, and add their problems to the rules' problems."""
    for diagnosis in _select_cases(test, test.diagnoses, keyword):
        diagnostics = rules.diagnostics_of(test)
        reasons = frozenset(compiled.diagnostic.reason for compiled in diagnostics or ())
        impossible = [] if diagnostics is None else [*analyse_diagnosis(diagnosis, reasons)]
        rules.problems += impossible
        for name in _case_names(test, diagnosis):
            if diagnostics is None or impossible:
                yield _not_run(name, Obstacle.DIAGNOSTICS if diagnostics is None else Obstacle.EXPECTATION)
            else:
                yield _run_diagnosis(name, diagnosis, test.objects[name.cluster](), diagnostics)


def _run_diagnosis(
    name: CaseName, diagnosis: ExpectedDiagnosis, objects: ClusterObjects, diagnostics: Sequence[CompiledDiagnostic]
) -> CaseResult:
    reasons = diagnosis.reasons
    compared = [item for item in diagnostics if reasons is None or item.diagnostic.reason in reasons]
    evaluation = evaluate_diagnostics(compared, objects, lambda _: True)
    mismatches = tuple(diagnosis_mismatches(diagnosis, evaluation))
    findings = tuple(
        FoundFinding(reason=each.reason, object=each.object, message=each.message) for each in evaluation.findings
    )
    return CaseResult(**structs.asdict(name), passed=not mismatches, mismatches=mismatches, findings=findings)


def _admit_case(case: Case, cluster: Cluster, rule_set: RuleSet) -> Admission:
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
    return admit_pod(rule_set, request, cluster)


def _case_result(name: CaseName, case: Case, admission: Admission) -> CaseResult:
    expectations = case.expectations(name.cluster)
    mismatches = tuple(each for expect in expectations for each in admission_mismatches(expect, admission))
    validation = admission.validation
    return CaseResult(
        **structs.asdict(name),
        passed=not mismatches,
        mismatches=mismatches,
        mutation=LoggedDecision.of(admission.mutation),
        validation=None if validation is None else LoggedDecision.of(validation),
    )
