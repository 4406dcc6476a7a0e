"""`gpu-rules check`: all problems of rule files, in one run."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from rules_engine.authoring.check.analysis import analyse_case, analyse_diagnosis, analyse_on_cluster, analyse_rules
from rules_engine.authoring.check.ignores import IgnoredWarning, apply_ignores
from rules_engine.cluster.read.clusters import ClusterReading, reading_of
from rules_engine.cluster.read.loader import DocumentKind, LoadResult
from rules_engine.cluster.read.references import Sources
from rules_engine.exports.configuration import find_warnings
from rules_engine.language.files import each_of
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.problems.problem import Problem, Severity, sort_problems
from rules_engine.model.rules.rule import API_VERSION, Rule
from rules_engine.model.rules.rule_test import FilePath
from rules_engine.report.answer import Answer
from rules_engine.rules.diagnostic.evaluation import compile_diagnostics, diagnostic_compiler
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.sources.documents import DIAGNOSTIC, DOCUMENTS
from rules_engine.rules.sources.load import RULES
from rules_engine.rules.sources.rule_files import CompilerOf, LoadedFiles, RuleFiles, read_rules

_ADVISING = partial(Compiler, advice=True)
"""A compiler that also warns about valid but useless expressions and names."""

NOTHING_CHECKED = f"no document with apiVersion {API_VERSION} found"


class CheckAnswer(Answer, frozen=True, kw_only=True):
    """All problems of rule files."""

    ignored: Annotated[tuple[IgnoredWarning, ...], Meta(description="Warnings that are not among the problems.")]
    errors: int
    warnings: Annotated[int, Meta(description="With those that comments ignore.")]
    files: Annotated[int, Meta(description="Files that were checked.")]
    skipped: Annotated[tuple[str, ...], Meta(description="Files of other tools, which were not checked.")]
    not_read: Annotated[tuple[str, ...], Meta(description="Objects that were not read, and that quotas depend on.")]
    rules: Annotated[int, Meta(description="Rules without errors of their form.")]
    tests: Annotated[int, Meta(description="RuleTests without errors of their form.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check, and the lines of the files."""

    answer: CheckAnswer
    sources: Sources

    def strict(self) -> "CheckResult":
        """Return the same result with warnings as errors, except the warnings that comments ignore."""
        answer = self.answer
        problems = tuple(structs.replace(problem, severity=Severity.ERROR) for problem in answer.problems)
        changed = structs.replace(answer, problems=problems, errors=len(problems), warnings=len(answer.ignored))
        return replace(self, answer=changed)


def check_files(
    paths: Iterable[str | Path],
    cluster: ClusterReading | ClusterObjects | None = None,
    kinds: Sequence[DocumentKind[object]] | None = None,
) -> CheckResult:
    """Load, compile and analyse the documents in files and folders, and the rules that their tests refer to.

    Rules that cannot work on `cluster` are problems, too.
    `kinds`: the kinds of documents to read, None for all; without RuleTest and Simulation, no other file is read.

    >>> from rules_engine import check
    >>> check(["rules_engine/rule_sets/gpu-allocation"]).answer.errors
    0
    """
    cluster = None if cluster is None else reading_of(cluster)
    checked = read_rules([Path(path) for path in each_of(paths)], kinds or DOCUMENTS, _ADVISING)
    problems = [
        *checked.problems,
        *analyse_rules(checked.loaded.rules),
        *find_warnings(checked.rule_set),
        *_diagnostic_problems(checked.loaded),
    ]
    sources = dict(checked.loaded.sources)
    loaded_files, rules = LoadedFiles(checked.loaded.files), _rules_by_file(checked.loaded)
    tested: dict[tuple[FilePath, ...], tuple[Sequence[Rule], frozenset[str]]] = {}
    for paths_of_rules in dict.fromkeys(test.rules for test in checked.loaded.tests):
        names = loaded_files.names_of(paths_of_rules)
        if names is not None:
            reasons = diagnostic_reasons(checked.loaded, frozenset(names))
            tested[paths_of_rules] = [rule for name in names for rule in rules[name]], reasons
            continue
        files = read_test_rules(paths_of_rules, _ADVISING)
        tested[paths_of_rules] = (*files.loaded.rules, *files.loaded.drafts), diagnostic_reasons(files.loaded)
        # Problems of files in `paths` are already reported.
        test_problems = (*files.problems, *_diagnostic_problems(files.loaded))
        problems.extend(p for p in test_problems if p.location.file not in checked.loaded.files)
        sources = {**files.loaded.sources, **sources}
    objects = None if cluster is None else cluster.objects
    if cluster is not None:
        cluster_problems = () if objects is None else analyse_on_cluster(objects, checked.loaded.rules)
        problems.extend((*cluster.problems, *cluster_problems))
        sources = {**cluster.sources, **sources}
    for test in checked.loaded.tests:
        test_rules, reasons = tested[test.rules]
        problems.extend(problem for case in test.cases for problem in analyse_case(case, test_rules))
        problems.extend(problem for diagnosis in test.diagnoses for problem in analyse_diagnosis(diagnosis, reasons))
    # Each problem once, even if its file was read by several paths.
    unique = {
        (os.path.realpath(each.location.file), each.location.line, each.location.column, each.code, each.message): each
        for each in reversed(problems)
    }
    kept, ignored = apply_ignores((*unique.values(),), sources, checked.loaded.files, on_cluster=cluster is not None)
    problems_in_order = sort_problems(kept, checked.loaded.files)
    errors = sum(problem.severity is Severity.ERROR for problem in problems_in_order)
    answer = CheckAnswer(
        problems=problems_in_order,
        ignored=ignored,
        errors=errors,
        warnings=len(problems_in_order) - errors + len(ignored),
        files=len(checked.loaded.files) - len(checked.loaded.passed_over),
        skipped=checked.loaded.passed_over,
        not_read=() if objects is None else tuple(filter(None, map(objects.unread, ("ResourceQuota", "Namespace")))),
        rules=len(checked.loaded.rules),
        tests=len(checked.loaded.tests),
    )
    return CheckResult(answer=answer, sources=sources)


def _diagnostic_problems(loaded: LoadResult) -> Iterator[Problem]:
    """Yield the problems in expressions of Diagnostics, also of Diagnostics with other errors."""
    _, problems = compile_diagnostics(loaded.of(Diagnostic), partial(diagnostic_compiler, advice=True))
    _, draft_problems = compile_diagnostics(loaded.of(Diagnostic, valid=False))
    yield from (*problems, *draft_problems)


def diagnostic_reasons(loaded: LoadResult, files: frozenset[str] | None = None) -> frozenset[str]:
    """Return the reasons of all Diagnostics, or of the Diagnostics in `files`, also of Diagnostics with errors."""
    diagnostics = (*loaded.of(Diagnostic), *loaded.of(Diagnostic, valid=False))
    return frozenset(each.reason for each in diagnostics if files is None or each.location.file in files)


def read_test_rules(rules: Sequence[FilePath], compiler_of: CompilerOf = Compiler) -> RuleFiles:
    """Read the rules and Diagnostics that a test refers to."""
    return read_rules([Path(name) for name in rules], (*RULES, DIAGNOSTIC), compiler_of)


def _rules_by_file(loaded: LoadResult) -> Mapping[str, Sequence[Rule]]:
    """Return the rules of each file, drafts last."""
    by_file: dict[str, list[Rule]] = {name: [] for name in loaded.files}
    for rule in (*loaded.rules, *loaded.drafts):
        by_file[rule.location.file].append(rule)
    return by_file
