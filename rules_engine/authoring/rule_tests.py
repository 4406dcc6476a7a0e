"""`test`: RuleTests, each case evaluated by both endpoints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rules_engine.authoring.admission import Admission, admit
from rules_engine.authoring.analysis import analyse_case
from rules_engine.authoring.check import read_tested
from rules_engine.authoring.rule_files import RuleFiles, Sources, has_errors
from rules_engine.documents import load
from rules_engine.evaluation import RuleSet
from rules_engine.loading import SLIPS
from rules_engine.model.admission import pod_request
from rules_engine.model.decision import Step
from rules_engine.model.json.strict import PodError
from rules_engine.model.pod import Container, Pod
from rules_engine.model.problems import Problem, Severity, in_file_order
from rules_engine.model.quantity import Quantity
from rules_engine.model.rules import RuleId
from rules_engine.model.ruletest import Case, Decider, FilePath, RuleTest


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One expectation that was not met: its name, the expected and the actual value."""

    what: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case that was run."""

    test: str
    case: Case
    admission: Admission
    mismatches: tuple[Mismatch, ...]

    @property
    def passed(self) -> bool:
        return not self.mismatches


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """The results of all cases. `problems` prevented `not_run` cases; `deselected` ones do not match the keyword.

    pytest must not collect this class: it is not a test.
    """

    __test__ = False

    results: tuple[CaseResult, ...]
    problems: tuple[Problem, ...]
    sources: Sources
    not_run: int
    deselected: int

    @property
    def failures(self) -> int:
        return sum(not result.passed for result in self.results)

    @property
    def succeeded(self) -> bool:
        """True if at least one case was run, all passed, and no error prevented any from running."""
        return bool(self.results) and not self.failures and not has_errors(self.problems)


def run_tests(paths: Sequence[Path], keyword: str = "") -> TestRun:
    """Run the cases in files and folders whose name, or whose test's name, contains `keyword`, ignoring letter case.

    A test whose rules have errors is not run, nor is a case with an impossible expectation. Warnings of rules are
    reported by `check` only; those of the cases' pods are reported here too.
    """
    loaded = load(paths)
    problems = [problem for problem in loaded.problems if problem.severity is Severity.ERROR or problem.code in SLIPS]
    sources = dict(loaded.sources)
    tested: dict[tuple[FilePath, ...], RuleFiles] = {}
    results: list[CaseResult] = []
    not_run = deselected = 0
    for test in loaded.tests:
        if test.rules not in tested:
            tested[test.rules] = files = read_tested(test.rules)
            sources.update(files.loaded.sources)
            problems.extend(problem for problem in files.problems if problem.severity is Severity.ERROR)
        files = tested[test.rules]
        for case in test.cases:
            if not _is_selected(keyword, test, case):
                deselected += 1
                continue
            impossible = () if files.failed else tuple(analyse_case(case, files.loaded.rules))
            problems.extend(impossible)
            if files.failed or has_errors(impossible):
                not_run += 1
            else:
                results.append(_run(test, case, files.rule_set))
    return TestRun(
        results=tuple(results),
        problems=in_file_order(problems, loaded.files),
        sources=sources,
        not_run=not_run,
        deselected=deselected,
    )


def _is_selected(keyword: str, test: RuleTest, case: Case) -> bool:
    return keyword.casefold() in f"{test.name} {case.name}".casefold()


def _run(test: RuleTest, case: Case, rule_set: RuleSet) -> CaseResult:
    namespaces = dict(test.cluster.namespaces)
    if case.namespace_labels:
        namespaces[case.namespace] = {**namespaces.get(case.namespace, {}), **case.namespace_labels}
    request = pod_request(
        case.pod,
        namespace=case.namespace,
        operation=case.operation,
        sub_resource=case.sub_resource,
        dry_run=case.dry_run,
        old_pod=case.old_pod,
    )
    admission = admit(rule_set, request, replace(test.cluster, namespaces=namespaces))
    return CaseResult(test=test.name, case=case, admission=admission, mismatches=tuple(_mismatches(case, admission)))


def _mismatches(case: Case, admission: Admission) -> Iterator[Mismatch]:
    expect = case.expect
    if expect.allowed is not None and expect.allowed is not admission.allowed:
        why = f" ({admission.message})" if admission.message else ""
        yield Mismatch("allowed", str(expect.allowed).lower(), f"{str(admission.allowed).lower()}{why}")
    if expect.message is not None and expect.message not in admission.message:
        yield Mismatch("message", f"a text with '{expect.message}'", _quoted([admission.message]))
    if expect.warnings is not None:
        yield from _warnings(expect.warnings, admission.warnings)
    try:
        pod = Pod.parse(admission.result)
    except PodError as error:
        if expect.containers or expect.annotations:
            yield Mismatch("pod", "a well-formed pod", str(error))
    else:
        yield from _containers(expect.containers, pod)
        yield from _annotations(expect.annotations, pod)
    if expect.decided_by is not None:
        yield from _deciders(expect.decided_by, [step for step in admission.trace if step.decides])


def _warnings(expected: Sequence[str], actual: Sequence[str]) -> Iterator[Mismatch]:
    if not expected and actual:
        yield Mismatch("warnings", "none", _quoted(actual))
    for text in expected:
        if not any(text in warning for warning in actual):
            yield Mismatch("warnings", f"one with '{text}'", _quoted(actual))


def _containers(expected: Mapping[str, Mapping[str, Quantity]], pod: Pod) -> Iterator[Mismatch]:
    by_name: dict[str, Container] = {container.name: container for container in pod.all_containers}
    for name, amounts in expected.items():
        container = by_name.get(name)
        if container is None:
            yield Mismatch(f"containers.{name}", "a container", f"the pod has {', '.join(by_name) or 'none'}")
            continue
        for resource, amount in amounts.items():
            given = container.limit_or_request(resource)
            if amount != (given or Quantity(0)):
                others = [
                    f"{key}: {value}" for key, value in sorted({**container.requests, **container.limits}.items())
                ]
                actual = str(given) if given is not None else f"none (it requests {', '.join(others) or 'nothing'})"
                yield Mismatch(f"containers.{name}.{resource}", str(amount), actual)


def _annotations(expected: Mapping[str, str | None], pod: Pod) -> Iterator[Mismatch]:
    for key, value in expected.items():
        given = pod.annotations.get(key)
        if given != value:
            yield Mismatch(f"annotations.{key}", _or_none(value), _or_none(given))


def _or_none(text: str | None) -> str:
    return "none" if text is None else f"'{text}'"


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts if text) or "none"


def _deciders(expected: Sequence[Decider], steps: Sequence[Step]) -> Iterator[Mismatch]:
    """Compare the rules that contributed to the decision, in any order, each with all expected rungs."""
    rungs = {step.rule: [decision.to or decision.resource for decision in step.resources] for step in steps}
    wanted: dict[RuleId, list[str]] = {}
    for decider in expected:
        wanted.setdefault(decider.rule, []).extend([decider.rung] if decider.rung else [])
    fits = wanted.keys() == rungs.keys() and all(set(wanted[rule]) <= set(rungs[rule]) for rule in wanted)
    if not fits:
        yield Mismatch("decidedBy", _listed(wanted), _listed(rungs))


def _listed(rungs: Mapping[RuleId, Sequence[str]]) -> str:
    return ", ".join(f"{rule} ({', '.join(names)})" if names else rule for rule, names in rungs.items()) or "no rule"
