"""Rule files as commands use them: loaded and compiled, with all problems."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rules_engine.cluster.read.loader import DocumentKind, LoadResult, Part
from rules_engine.cluster.workloads.kind import WorkloadKind, repeated_kinds
from rules_engine.language.files import find_files
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, Problems, Severity, sort_problems
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.rule import Rule
from rules_engine.model.rules.rule_test import FilePath
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.kinds import compile_rules
from rules_engine.rules.rule_set.compiler import Compiler
from rules_engine.rules.sources.load import RULES, load_files

_PACKAGE = Path(__file__).parents[2]

DEFAULT_RULES = _PACKAGE / "rule_sets" / "gpu-allocation"
"""The packaged rule set of `demo`, and of `serve` without `--rules` and a live cluster."""

DEFAULT_CLUSTER = _PACKAGE / "inventories" / "two-workers.yaml"
"""The packaged inventory: a tainted control plane and two workers with four GPUs each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFiles:
    """The documents of files, with compiled rules, and the `problems` of loading and compiling in file order."""

    loaded: LoadResult
    rule_set: RuleSet
    problems: tuple[Problem, ...]

    @property
    def failed(self) -> bool:
        return has_errors(self.problems)

    @property
    def rule_problems(self) -> tuple[Problem, ...]:
        """The problems without problems of Diagnostics, of tests and of references in tests."""
        others = self.loaded.problems_of(Part.DIAGNOSTICS, Part.TESTS)
        return tuple(problem for problem in self.problems if problem not in others)


class LoadedFiles:
    """Files already read, which tests may refer to by other paths."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = {os.path.realpath(name): name for name in names}

    def names_of(self, paths: Sequence[FilePath]) -> Sequence[str] | None:
        """Return the names of all files in files and folders; None if one is not found, or not read yet."""
        problems = Problems()
        files = [os.path.realpath(file) for file in find_files([Path(path) for path in paths], problems)]
        if problems.items or not self._names.keys() >= set(files):
            return None
        return [self._names[file] for file in files]


CompilerOf = Callable[[Rule], Compiler]
"""A function that returns a compiler for a rule."""


def read_rules(
    paths: Sequence[Path], kinds: Sequence[DocumentKind[object]] = RULES, compiler_of: CompilerOf = Compiler
) -> RuleFiles:
    """Load and compile rules, and load other `kinds` of documents; see `compile_loaded`."""
    return compile_loaded(load_files(paths, kinds), compiler_of)


def no_rules_problem(sources: Sequence[object]) -> Problem:
    """Return the problem that sources, such as paths, have no rule, located at the first source."""
    return Problem(code=Code.NO_RULES, message="no rule found", location=Location(str(sources[0]), 1, 1))


def compile_loaded(loaded: LoadResult, compiler_of: CompilerOf = Compiler) -> RuleFiles:
    """Compile loaded rules, and check the expressions of rules with errors, which are not in the rule set."""
    rule_set, rule_problems = compile_rules(loaded.rules, compiler_of=compiler_of)
    rule_set = replace(rule_set, workload_kinds=loaded.of(WorkloadKind))
    _, draft_problems = compile_rules(loaded.drafts)
    repeated = repeated_kinds(rule_set.workload_kinds)
    problems = sort_problems((*loaded.problems, *rule_problems, *draft_problems, *repeated), loaded.files)
    return RuleFiles(loaded=loaded, rule_set=rule_set, problems=problems)


def has_errors(problems: Sequence[Problem]) -> bool:
    """Return True if any problem is an error."""
    return any(problem.severity is Severity.ERROR for problem in problems)
