"""Diagnostics and ladders of a diagnosis: read and compiled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rules_engine.cluster.read.references import Sources
from rules_engine.model.problems.problem import Problem, sort_problems
from rules_engine.rules.diagnostic.evaluation import CompiledDiagnostic, compile_diagnostics
from rules_engine.rules.diagnostic.value import Diagnostic
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.documents import DIAGNOSTIC
from rules_engine.rules.sources.load import CATALOGUE, RULES
from rules_engine.rules.sources.rule_files import has_errors
from rules_engine.rules.sources.rule_sources import DIAGNOSTICS, PathSource, RuleSource, load_sources
from rules_engine.server.rules.folder_watch import Signature, files_signature


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDoctor:
    """Compiled Diagnostics, and the active rules; `rules`: their paths, or "".

    `problems`: of rules and Diagnostics, in file order. `seen`: the state of the rules' files before they were read.
    """

    diagnostics: tuple[CompiledDiagnostic, ...]
    rule_set: RuleSet | None
    rules: str
    problems: tuple[Problem, ...]
    sources: Sources
    seen: Signature

    @property
    def failed(self) -> bool:
        return has_errors(self.problems)


def prepare_diagnosis(rules: Sequence[RuleSource]) -> PreparedDoctor:
    """Read the packaged Diagnostics, and rules: their ladders, and their Diagnostics.

    A Diagnostic among the rules replaces the packaged one of the same name.
    """
    seen = files_signature(paths_of(rules))
    diagnostics: dict[str, Diagnostic] = {}
    problems: list[Problem] = []
    sources: dict[str, Sequence[str]] = {}
    names: list[str] = []
    kinds = (CATALOGUE, *RULES, DIAGNOSTIC)
    packaged, own = load_sources((DIAGNOSTICS,), kinds), load_sources(rules, kinds) if rules else None
    for files in filter(None, (packaged, own)):
        diagnostics |= {diagnostic.name: diagnostic for diagnostic in files.loaded.of(Diagnostic)}
        problems += files.problems
        sources |= files.loaded.sources
        names += files.loaded.files
    compiled, compile_problems = compile_diagnostics(diagnostics.values())
    return PreparedDoctor(
        diagnostics=compiled,
        rule_set=None if own is None else own.rule_set,
        rules=" ".join(map(str, rules)),
        problems=sort_problems((*problems, *compile_problems), names),
        sources=sources,
        seen=seen,
    )


def paths_of(rules: Sequence[RuleSource]) -> Sequence[Path]:
    """Return the sources that are files and folders, which can be watched."""
    return [source.path for source in rules if isinstance(source, PathSource)]
