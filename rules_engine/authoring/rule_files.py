"""Rule files for commands: loaded and compiled, with all problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rules_engine.documents import Loaded, load
from rules_engine.evaluation import RuleSet
from rules_engine.kinds import compile_rules
from rules_engine.model.problems import Problem, Severity, in_file_order

_PACKAGE = Path(__file__).parent.parent

DEFAULT_RULES = _PACKAGE / "rule_sets" / "default"
"""The packaged rule set, the default of commands."""

DEFAULT_CLUSTER = _PACKAGE / "inventories" / "two-workers.yaml"
"""The packaged inventory: a tainted control plane and two workers with four GPUs each."""

Sources = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFiles:
    """The documents of files, with compiled rules; `problems` of loading and compiling are in file order."""

    loaded: Loaded
    rule_set: RuleSet
    problems: tuple[Problem, ...]

    @property
    def failed(self) -> bool:
        return has_errors(self.problems)


def read_rules(paths: Sequence[Path]) -> RuleFiles:
    """Load and compile rules; the expressions of rules with errors are checked as well."""
    loaded = load(paths)
    rule_set, found = compile_rules(loaded.rules)
    _, more = compile_rules(loaded.drafts)
    problems = in_file_order((*loaded.problems, *found, *more), loaded.files)
    return RuleFiles(loaded=loaded, rule_set=rule_set, problems=problems)


def has_errors(problems: Sequence[Problem]) -> bool:
    """Return True if a problem is an error."""
    return any(problem.severity is Severity.ERROR for problem in problems)
