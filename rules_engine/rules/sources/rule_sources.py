"""Sources of rules: files and folders, packaged sets, git revisions; callers may add others, by a prefix."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from msgspec import structs

from rules_engine.cluster.read.loader import DocumentKind
from rules_engine.language.files import SourceFile, each_of, find_files, path_exists, read_file
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems, Severity, did_you_mean, warn_of
from rules_engine.model.problems.source import truncate
from rules_engine.rules.rule_set.rule_set import RuleSet
from rules_engine.rules.sources.git_files import revision_files
from rules_engine.rules.sources.load import COMMAND_KINDS, load_texts
from rules_engine.rules.sources.packaged_sets import list_packaged_sets
from rules_engine.rules.sources.rule_files import RuleFiles, compile_loaded, no_rules_problem


class SourceError(ValueError):
    """A text is not the name of a source; the message is for the command line."""


class RuleSource(Protocol):
    """A place with rule files; `str()` is its name in messages."""

    def files(self, problems: Problems) -> Iterable[SourceFile]:
        """Read the files, in order; their problems are added to `problems`."""


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file or folder."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def files(self, problems: Problems) -> Iterable[SourceFile]:
        """Read the same files as `check`."""
        files = (read_file(file, problems, regular=True) for file in find_files([self.path], problems))
        return [file for file in files if file is not None]


@dataclass(frozen=True, slots=True)
class PackagedSource:
    """A packaged rule set."""

    name: str

    def __str__(self) -> str:
        return self.name

    @classmethod
    def parse(cls, name: str) -> "PackagedSource":
        """Return the set with this name. Raises SourceError."""
        names = list_packaged_sets()
        if name not in names:
            raise SourceError(
                f"'{truncate(name)}' is no packaged set{did_you_mean(name, names)}: expected {', '.join(names)}"
            )
        return cls(name)

    def files(self, problems: Problems) -> Iterable[SourceFile]:
        """Read the set's files; their names in messages are `SET/FILE`."""
        return list_packaged_sets()[self.name].sources(problems)


@dataclass(frozen=True, slots=True)
class GitSource:
    """A file or folder at a revision of the repository of the current folder."""

    revision: str
    path: str

    def __str__(self) -> str:
        return f"git:{self.revision}:{self.path}"

    @classmethod
    def parse(cls, text: str) -> "GitSource":
        """Parse `REF:PATH`. Raises SourceError."""
        revision, colon, path = text.partition(":")
        if not revision or not colon:
            raise SourceError(f"'git:{truncate(text)}' is not git:REF:PATH, such as git:main:rules")
        return cls(revision, path)

    def files(self, problems: Problems) -> Iterable[SourceFile]:
        """Read the files; their names in messages are `git:REF:PATH/FILE`."""
        return revision_files(self.revision, self.path, problems)


ParseSource = Callable[[str], RuleSource]
"""A function that parses the text of a source after its prefix. Raises SourceError."""

PREFIXES: Mapping[str, ParseSource] = MappingProxyType({"git": GitSource.parse, "set": PackagedSource.parse})


def parse_source(text: str, prefixes: Mapping[str, ParseSource] = PREFIXES) -> RuleSource:
    """Parse the text of a source: a known prefix with a colon, else a packaged set, else an existing path.

    Raises SourceError.
    """
    if not text:  # an unset variable of a script: the path would be the current folder
        raise SourceError("the name of a source is empty")
    prefix, colon, suffix = text.partition(":")
    if colon and prefix in prefixes:
        return prefixes[prefix](suffix)
    path = Path(text)
    is_path, names = path_exists(path), list_packaged_sets()
    if text in names:
        if is_path:
            message = f"'{text}' is a packaged set and is also in the current folder"
            raise SourceError(f"{message}: write set:{text} for the former, ./{text} for the latter")
        return PackagedSource(text)
    if not is_path:
        *others, last = (f"{each}:" for each in prefixes)
        message = f"'{truncate(text)}' is no file or folder, no packaged set, and does not begin with "
        raise SourceError(f"{message}{', '.join(others)} or {last}{did_you_mean(text, (*names, *_near_paths(path)))}")
    return PathSource(path)


DIAGNOSTICS = PackagedSource("diagnostics")
"""The packaged set of Diagnostics."""


def load_sources(sources: Sequence[RuleSource], kinds: Sequence[DocumentKind[object]] = COMMAND_KINDS) -> RuleFiles:
    """Read and compile the rules of one or more sources, and their documents of other kinds."""
    collected = Problems()
    # Sources may overlap: a folder, and a file in it.
    texts = {file.name: file for source in sources for file in source.files(collected)}
    return compile_loaded(load_texts(texts.values(), kinds, collected))


def load_rules(sources: str | Path | Iterable[str | Path]) -> RuleSet:
    """Load and compile rules of files, folders, packaged sets (`set:NAME`) and git revisions (`git:REF:PATH`).

    Warnings are issued as UserWarning. Raises InputError, and SourceError for a source that is not found.

    >>> from rules_engine import load_rules
    >>> len(load_rules(["set:gpu-allocation"]).rules)
    6
    """
    parsed = [PathSource(each) if isinstance(each, Path) else parse_source(each) for each in each_of(sources)]
    if not parsed:
        raise SourceError("no source of rules is given")
    files = read_sources(parsed)
    warn_of(files.problems)
    return files.rule_set


def read_sources(sources: Sequence[RuleSource]) -> RuleFiles:
    """Read and compile rules. Sources without any rule are a problem at the first one: they would allow every pod."""
    files = load_sources(sources)
    if files.failed or files.loaded.rules or not sources:
        return files
    problem = no_rules_problem(sources)
    if any(kind.source.text == "Diagnostic" for kind in files.loaded.unread):
        message = f"{problem.message}, only Diagnostics, which doctor reads"
        problem = structs.replace(problem, message=message)
    elif files.rule_set.workload_kinds:
        message = f"{problem.message}, only WorkloadKinds: pass rules, too, such as --rules set:gpu-allocation"
        problem = structs.replace(problem, message=message)
    return replace(files, problems=(*files.problems, problem))


def _near_paths(path: Path) -> Sequence[str]:
    """Return the neighbours of a path with similar names, compared without suffixes that many share."""
    try:
        entries = [entry for entry in path.parent.iterdir() if did_you_mean(path.stem, [entry.stem])]
        return [str(path.parent / entry.name) for entry in entries]
    except OSError:
        return ()


def read_sides(old: Sequence[RuleSource], new: Sequence[RuleSource]) -> tuple[RuleFiles, RuleFiles]:
    """Read and compile the rules before and after a change, even if one side has errors.

    An old side without rules is only a warning: the change may be the one that adds the first rules. A path that a git
    revision does not have counts as an empty folder, since git does not store empty folders.
    """
    before = read_sources(old)
    absent = {f"git:{source.revision}:{source.path.rstrip('/')}" for source in old if isinstance(source, GitSource)}
    problems = tuple(
        structs.replace(problem, message=f"{problem.message}: no rules before the change", severity=Severity.WARNING)
        if problem.code in (Code.NO_RULES, Code.NO_FILES)
        or (problem.code is Code.MISSING_FILE and problem.location.file in absent)
        else problem
        for problem in before.problems
    )
    return replace(before, problems=problems), read_sources(new)
