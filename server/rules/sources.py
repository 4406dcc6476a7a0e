"""Sources of rules and cluster: rules read and compiled, a cluster read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rules_engine.cluster.read.clusters import read_cluster
from rules_engine.language.files import SourceFile
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problem, render_problem
from rules_engine.rules.kinds import sort_rules
from rules_engine.rules.sources.load import load_texts
from rules_engine.rules.sources.rule_files import (
    DEFAULT_CLUSTER,
    DEFAULT_RULES,
    RuleFiles,
    compile_loaded,
    has_errors,
    read_rules,
)
from rules_engine.server.cluster.source import Live
from rules_engine.server.state import Reload, ServedRules

MAX_REFUSED = 1_000
"""Problems of a refused set in `GET /rules`."""


@dataclass(frozen=True, kw_only=True)
class Rules(ServedRules):
    """Rules as read. `tests`: the number of RuleTests among them. `diagnostics`: their warnings."""

    tests: int
    diagnostics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedServer:
    """Rules and cluster, with descriptions of their sources for the server's log.

    `cluster` is read from a file; for a live cluster, it has the declared nodes. `refused`: the rule files had errors,
    and the rules are kept ones.
    """

    rules: Rules
    refused: Reload | None
    cluster: Cluster
    rules_from: str
    cluster_from: str


class UnusableError(Exception):
    """Rules or a cluster with errors: `diagnostics` shows every problem with its source line, in file order.

    `digest`: of the refused rules, if the rules are at fault. `places`: the diagnostics without the contents of files;
    by default, the diagnostics themselves, which have none.
    """

    def __init__(self, diagnostics: str, digest: str | None = None, *, places: tuple[str, ...] = ()) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics
        self.digest = digest
        self.places = places or (diagnostics,)


def prepare_rules(paths: Sequence[Path]) -> Rules:
    """Read and compile rules. Raises UnusableError."""
    return _check_rules(read_rules(paths or (DEFAULT_RULES,)), " ".join(map(str, paths)))


def prepare_texts(texts: Mapping[str, str], source: str) -> Rules:
    """Compile the rules of texts by file name. Raises UnusableError."""
    files = [SourceFile(name, text, is_json=name.endswith(".json")) for name, text in texts.items()]
    return _check_rules(compile_loaded(load_texts(files)), source)


def _check_rules(rules: RuleFiles, searched: str) -> Rules:
    """Return rules without errors. Raises UnusableError."""
    loaded = rules.loaded
    diagnostics = _render_problems(rules.problems, loaded.sources)
    if rules.failed:
        # Without their messages, which quote names and values.
        places = (f"{each.location}: {each.severity.value} [{each.code}]" for each in rules.problems)
        raise UnusableError(diagnostics, loaded.digest, places=tuple(places))
    if not loaded.rules:
        message = f"gpu-rules serve: no rules in {searched}: a server without rules admits every pod"
        raise UnusableError(message, loaded.digest)
    return Rules(
        rule_set=rules.rule_set,
        listed=sort_rules(loaded.rules),
        digest=loaded.digest,
        texts={name: "\n".join(loaded.sources[name]) for name in {each.location.file for each in loaded.documents}},
        tests=sum(kind.source.text == "RuleTest" for kind in loaded.unread),
        diagnostics=diagnostics,
    )


def prepare_sources(
    paths: Sequence[Path] = (),
    place: Path | Live | None = None,
    declared: Path | None = None,
    load_kept: Callable[[], Rules] | None = None,
) -> tuple[PreparedServer, str]:
    """Read and compile rules and cluster; return them with the warnings. Raises UnusableError.

    By default, these are the packaged ones. `declared`: nodes in addition to those of a live cluster. `load_kept`
    returns rules in place of rules with errors, or raises UnusableError.
    """
    reports = []
    rules = cluster = refused = None
    try:
        rules = prepare_rules(paths)
        reports.append(rules.diagnostics)
    except UnusableError as error:
        reports.append(error.diagnostics)
        if load_kept is not None:
            refused = Reload(at=datetime.now(UTC), digest=error.digest, refused=error.places[:MAX_REFUSED])
            try:
                rules = load_kept()
            except UnusableError as error_of_kept:
                reports.append(error_of_kept.diagnostics)
    cluster, problems, lines = _read_cluster(place, declared)
    reports.append(_render_problems(problems, lines))
    diagnostics = "\n".join(filter(None, reports))
    if rules is None or cluster is None or has_errors(problems):
        raise UnusableError(diagnostics)
    cluster_from = str(place or "the packaged inventory two-workers")
    if isinstance(place, Live):
        cluster_from = f"live ({place.value}){f' and {declared}' if declared else ''}"
    prepared = PreparedServer(
        rules=rules,
        refused=refused,
        cluster=cluster,
        rules_from=("kept rules in place of " if refused else "") + " ".join(map(str, paths))
        or f"the packaged set {DEFAULT_RULES.name}",
        cluster_from=cluster_from,
    )
    return prepared, diagnostics


def _read_cluster(
    place: Path | Live | None, declared: Path | None
) -> tuple[Cluster | None, tuple[Problem, ...], Mapping[str, Sequence[str]]]:
    """Read the cluster of a file, or the nodes declared for a live one; return it with problems and lines."""
    file = declared if isinstance(place, Live) else place or DEFAULT_CLUSTER
    if file is None:
        return Cluster(), (), {}
    reading = read_cluster([file])
    return reading.cluster, reading.problems, reading.sources


def _render_problems(problems: Sequence[Problem], lines: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(render_problem(problem, lines) for problem in problems)
