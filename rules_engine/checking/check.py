"""`check`: all problems of rule files, in one run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rules_engine.checking.analysis import analyse, analyse_case, analyse_diagnosis, analyse_on
from rules_engine.checking.ignores import Ignored, apply_ignores
from rules_engine.diagnosis.diagnostic import Diagnostic, compile_diagnostics
from rules_engine.diagnosis.diagnostic import adviser as diagnostic_adviser
from rules_engine.documents.load import RULES, Loaded, load_cluster
from rules_engine.documents.references import Sources
from rules_engine.documents.registry import DIAGNOSTIC, DOCUMENTS
from rules_engine.evaluation.rule_set.compiler import Compiler
from rules_engine.model.problems.problem import Problem, Severity, in_file_order
from rules_engine.model.rules.rule import API_VERSION, Rule
from rules_engine.model.rules.rule_test import FilePath
from rules_engine.sources.rule_files import CompilerOf, ReadFiles, RuleFiles, read_rules
from rules_engine.webhooks.configuration import warnings

NOTHING_CHECKED = f"no document with apiVersion {API_VERSION} found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check; `files` is the number of files checked, without those passed over.

    `problems` are without the warnings that comments ignore.
    """

    problems: tuple[Problem, ...]
    ignored: tuple[Ignored, ...]
    sources: Sources
    files: int
    passed_over: tuple[str, ...]
    rules: int
    tests: int

    @property
    def errors(self) -> int:
        return sum(problem.severity is Severity.ERROR for problem in self.problems)

    @property
    def warnings(self) -> int:
        return len(self.problems) - self.errors

    def strict(self) -> "Checked":
        """Return the same result with warnings as errors, but for those that comments ignore."""
        return replace(self, problems=tuple(replace(problem, severity=Severity.ERROR) for problem in self.problems))


def check(paths: Sequence[Path], cluster: Path | None = None) -> Checked:
    """Load, compile and analyse the documents in files and folders, and the rules that their tests refer to.

    `cluster`: a file with a ClusterInventory, or kubectl's output; rules that can't work on it are problems, too.
    """
    checked = read_rules(paths, DOCUMENTS, adviser)
    problems = [
        *checked.problems,
        *analyse(checked.loaded.rules),
        *warnings(checked.rule_set),
        *_diagnostic_problems(checked.loaded),
    ]
    sources = dict(checked.loaded.sources)
    read, rules = ReadFiles(checked.loaded.files), _rules_by_file(checked.loaded)
    tested: dict[tuple[FilePath, ...], tuple[Sequence[Rule], frozenset[str]]] = {}
    for paths_of_rules in dict.fromkeys(test.rules for test in checked.loaded.tests):
        names = read.among(paths_of_rules)
        if names is not None:
            reasons = reasons_of(checked.loaded, frozenset(names))
            tested[paths_of_rules] = [rule for name in names for rule in rules[name]], reasons
            continue
        files = read_tested(paths_of_rules, adviser)
        tested[paths_of_rules] = (*files.loaded.rules, *files.loaded.drafts), reasons_of(files.loaded)
        # The problems of a file that was itself named are already reported.
        found = (*files.problems, *_diagnostic_problems(files.loaded))
        problems.extend(p for p in found if p.location.file not in checked.loaded.files)
        sources = {**files.loaded.sources, **sources}
    if cluster is not None:
        nodes, wrong, lines = load_cluster(cluster)
        problems.extend((*wrong, *(analyse_on(nodes, checked.loaded.rules) if nodes else ())))
        sources = {**lines, **sources}
    for test in checked.loaded.tests:
        known, reasons = tested[test.rules]
        problems.extend(problem for case in test.cases for problem in analyse_case(case, known))
        problems.extend(problem for diagnosis in test.diagnoses for problem in analyse_diagnosis(diagnosis, reasons))
    kept, ignored = apply_ignores(tuple(_once(problems)), sources, checked.loaded.files, on_cluster=cluster is not None)
    return Checked(
        problems=in_file_order(kept, checked.loaded.files),
        ignored=ignored,
        sources=sources,
        files=len(checked.loaded.files) - len(checked.loaded.passed_over),
        passed_over=checked.loaded.passed_over,
        rules=len(checked.loaded.rules),
        tests=len(checked.loaded.tests),
    )


def adviser(rule: Rule) -> Compiler:
    """Return a compiler that also warns of expressions and names that are valid and useless."""
    return Compiler(rule, advice=True)


def _diagnostic_problems(loaded: Loaded) -> Iterator[Problem]:
    """Yield the problems of the expressions of Diagnostics, those with errors elsewhere included."""
    _, found = compile_diagnostics(loaded.of(Diagnostic), diagnostic_adviser)
    _, more = compile_diagnostics(loaded.of(Diagnostic, valid=False))
    yield from (*found, *more)


def reasons_of(loaded: Loaded, files: frozenset[str] | None = None) -> frozenset[str]:
    """Return the reasons of Diagnostics, those with errors included: of all, or of these files."""
    every = (*loaded.of(Diagnostic), *loaded.of(Diagnostic, valid=False))
    return frozenset(found.reason for found in every if files is None or found.location.file in files)


def read_tested(rules: Sequence[FilePath], compiler_of: CompilerOf = Compiler) -> RuleFiles:
    """Read the rules and Diagnostics that a test refers to."""
    return read_rules([Path(name) for name in rules], (*RULES, DIAGNOSTIC), compiler_of)


def _rules_by_file(loaded: Loaded) -> Mapping[str, Sequence[Rule]]:
    """Return the rules of each file, drafts last."""
    found: dict[str, list[Rule]] = {name: [] for name in loaded.files}
    for rule in (*loaded.rules, *loaded.drafts):
        found[rule.location.file].append(rule)
    return found


def _once(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Yield each problem once, even if its file was read by several names."""
    unique: Mapping[tuple[object, ...], Problem] = {
        (os.path.realpath(p.location.file), p.location.line, p.location.column, p.code, p.message): p
        for p in reversed(problems)
    }
    yield from unique.values()
