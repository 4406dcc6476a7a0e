"""`test`: RuleTests, each case evaluated by both endpoints."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from rules_engine.checking.analysis import analyse_case, analyse_diagnosis
from rules_engine.checking.check import read_test_rules
from rules_engine.diagnosis.diagnostic import (
    CompiledDiagnostic,
    Diagnostic,
    compile_diagnostics,
    diagnostic_compiler,
    evaluate_diagnostics,
)
from rules_engine.documents.document_kind import Part
from rules_engine.documents.loader import LoadResult
from rules_engine.documents.references import Sources
from rules_engine.documents.registry import load_documents
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission, admit_pod
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.kinds import compile_rules
from rules_engine.loading import SLIPS
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.problem import Problem, Severity, sort_problems
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.finding import Finding
from rules_engine.model.rules.rule_test import Case, Diagnosis, FilePath, RuleTest
from rules_engine.sources.rule_files import CompilerOf, LoadedFiles, RuleFiles, compile_loaded, has_errors
from rules_engine.testing.coverage import Coverage, CoverageRecorder
from rules_engine.testing.mismatches import Mismatch, admission_mismatches, diagnosis_mismatches, step_outcome

MAX_SHOWN = 20
"""Findings listed in the explanation of a failed diagnosis."""


@dataclass(frozen=True, slots=True)
class CaseName:
    """A case on one cluster, with the names of the test and of the cluster; "" if the test has only one cluster."""

    test: str
    case: Case | Diagnosis
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
    DIAGNOSTICS = "the Diagnostics have errors"
    EXPECTATION = "the expectation has errors"


@dataclass(frozen=True, slots=True)
class CaseNotRun:
    """A case that cannot be run, on one cluster."""

    name: CaseName
    obstacle: Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(ABC):
    """A case, or a diagnosis, that was run on one cluster."""

    name: CaseName
    mismatches: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        return not self.mismatches

    @property
    @abstractmethod
    def explanation(self) -> str:
        """The mismatches and their reasons, a line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisResult(Result):
    """A diagnosis that was run on one cluster."""

    findings: tuple[Finding, ...]

    @property
    def explanation(self) -> str:
        """The mismatches, and the findings."""
        findings = [f"{finding.reason} of {finding.object}: {finding.message}" for finding in self.findings]
        return "\n".join([*map(str, self.mismatches), "found:", *(findings[:MAX_SHOWN] or ["nothing"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult(Result):
    """A case that was run on one cluster."""

    admission: Admission

    @property
    def explanation(self) -> str:
        """The mismatches, and the reasons of the decision: the outcome of each rule, a line each."""
        refusals = [decision.refusal for decision in self.admission.decisions if decision.refusal is not None]
        reasons = [
            *(f"refused: {refusal.message}" for refusal in refusals),
            *(f"{step.rule}: {step_outcome(step)}" for step in self.admission.trace),
        ]
        return "\n".join([*map(str, self.mismatches), "why:", *(reasons or ["no rule was evaluated"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """The results of cases and the cases not run; `deselected` counts the cases that do not match the keyword.

    `coverage` is None unless it was recorded, in a run without errors.
    """

    __test__ = False  # its name begins like a test class, but pytest must not collect it

    results: tuple[Result, ...]
    problems: tuple[Problem, ...]
    sources: Sources
    not_run: tuple[CaseNotRun, ...]
    deselected: int
    coverage: Coverage | None
    references: tuple[Path, ...]
    """Files and folders that tests refer to, even if they do not exist."""

    @property
    def failures(self) -> int:
        return sum(not result.passed for result in self.results)

    @property
    def not_run_groups(self) -> Iterator[tuple[CaseNotRun, int]]:
        """Yield the first of consecutive cases of a test that have the same obstacle, and their number."""
        for _, group in groupby(self.not_run, key=lambda case: (case.name.file, case.name.test, case.obstacle)):
            first, *others = group
            yield first, 1 + len(others)

    @property
    def succeeded(self) -> bool:
        """True if at least one case was run, all passed, and no error prevented any from running."""
        return bool(self.results) and not self.failures and not has_errors(self.problems)


def run_tests(paths: Sequence[Path], keyword: str = "", *, coverage: bool = False) -> TestRun:
    """Run the cases in files and folders whose name, or whose test's name, contains `keyword`, ignoring letter case.

    A test with errors or whose rules have errors is not run, nor is a case with an impossible expectation. Warnings
    about rules are reported by `check` only, warnings about pods of cases here too. `coverage`: record it, for the
    rules of all tests and all other rules in `paths`.
    """
    loaded = load_documents(paths)
    recorder = CoverageRecorder() if coverage else None
    rules = _TestedRules(loaded, recorder)
    problems = [problem for problem in loaded.problems if problem.severity is Severity.ERROR or problem.code in SLIPS]
    results: list[Result] = []
    not_run = [
        CaseNotRun(name, Obstacle.TEST)
        for test in loaded.of(RuleTest, valid=False)
        for case in _select_cases(test, test.cases + test.diagnoses, keyword)
        for name in _case_names(test, case)
    ]
    for test in loaded.tests:
        files = rules.of(test)
        failed = has_errors(files.rule_problems)
        for case in _select_cases(test, test.cases, keyword):
            names = _case_names(test, case)
            impossible = () if failed else tuple(analyse_case(case, files.loaded.rules))
            problems.extend(impossible)
            if failed or has_errors(impossible):
                obstacle = Obstacle.RULES if failed else Obstacle.EXPECTATION
                not_run.extend(CaseNotRun(name, obstacle) for name in names)
                continue
            for name in names:
                result = _run_case(name, case, test.clusters.get(name.cluster, test.cluster), files.rule_set)
                results.append(result)
                if recorder is not None:
                    recorder.observe(result.admission.trace, _pod_namespace(case))
        diagnosis_results, diagnoses_not_run, diagnosis_problems = _run_diagnoses(test, keyword, rules)
        results.extend(diagnosis_results)
        not_run.extend(diagnoses_not_run)
        problems.extend(diagnosis_problems)
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
    return TestRun(
        results=tuple(results),
        problems=sort_problems(problems, loaded.files),
        sources={**loaded.sources, **rules.sources},
        not_run=tuple(not_run),
        deselected=cases - len(results) - len(not_run),
        coverage=None if recorder is None or has_errors(problems) else recorder.coverage,
        references=loaded.references,
    )


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


AnyCase = TypeVar("AnyCase", bound=Case | Diagnosis)


def _select_cases(test: RuleTest, cases: Sequence[AnyCase], keyword: str) -> Iterator[AnyCase]:
    for case in cases:
        if keyword.casefold() in f"{test.name} {case.name}".casefold():
            yield case


def _case_names(test: RuleTest, case: Case | Diagnosis) -> list[CaseName]:
    """Return the names of a case, one for each of its clusters."""
    clusters = case.clusters if isinstance(case, Case) else tuple(test.objects)
    return [CaseName(test.name, case, cluster) for cluster in clusters or ("",)]


def _run_diagnoses(
    test: RuleTest, keyword: str, rules: _TestedRules
) -> tuple[list[DiagnosisResult], list[CaseNotRun], list[Problem]]:
    """Run the diagnoses of a test. Return the results, the diagnoses that cannot be run, and their problems."""
    results, not_run, problems = [], [], []
    for diagnosis in _select_cases(test, test.diagnoses, keyword):
        diagnostics = rules.diagnostics_of(test)
        reasons = frozenset(compiled.diagnostic.reason for compiled in diagnostics or ())
        impossible = [] if diagnostics is None else [*analyse_diagnosis(diagnosis, reasons)]
        problems += impossible
        for name in _case_names(test, diagnosis):
            if diagnostics is None or impossible:
                obstacle = Obstacle.DIAGNOSTICS if diagnostics is None else Obstacle.EXPECTATION
                not_run.append(CaseNotRun(name, obstacle))
            else:
                results.append(_run_diagnosis(name, diagnosis, test.objects[name.cluster](), diagnostics))
    return results, not_run, problems


def _run_diagnosis(
    name: CaseName, diagnosis: Diagnosis, objects: ClusterObjects, diagnostics: Sequence[CompiledDiagnostic]
) -> DiagnosisResult:
    reasons = diagnosis.reasons
    compared = [item for item in diagnostics if reasons is None or item.diagnostic.reason in reasons]
    evaluation = evaluate_diagnostics(compared, objects, lambda _: True)
    mismatches = tuple(diagnosis_mismatches(diagnosis, evaluation))
    return DiagnosisResult(name=name, mismatches=mismatches, findings=evaluation.findings)


def _pod_namespace(case: Case) -> str:
    """Return the pod's namespace, which rules read; default: the request's."""
    return text_member(as_mapping(as_mapping(case.pod).get("metadata")), "namespace") or case.namespace


def _run_case(name: CaseName, case: Case, cluster: Cluster, rule_set: RuleSet) -> CaseResult:
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
    admission = admit_pod(rule_set, request, cluster)
    return CaseResult(name=name, admission=admission, mismatches=tuple(_case_mismatches(case, name.cluster, admission)))


def _case_mismatches(case: Case, cluster: str, admission: Admission) -> Iterator[Mismatch]:
    for expect in case.expectations(cluster):
        yield from admission_mismatches(expect, admission)
