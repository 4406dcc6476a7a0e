"""Files in, decisions' material out: rules read and compiled, a cluster read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rules_engine.evaluation import RuleSet, compile_rules
from rules_engine.loading import load, load_cluster
from rules_engine.model.cluster import Cluster
from rules_engine.model.problems import Severity, in_file_order, render

PACKAGED_RULES = Path(__file__).parent.parent / "rules_engine" / "rule_sets" / "default"
"""The set that is served without `--rules`."""

INVENTORIES = Path(__file__).parent / "inventories"
"""`examples/inventories`, packaged."""

PACKAGED_CLUSTER = INVENTORIES / "two-workers.yaml"
"""The cluster without `--cluster`: a tainted control plane and two workers with four GPUs each."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where rules and cluster come from; without paths, the packaged ones."""

    rules: tuple[Path, ...] = ()
    cluster: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that decisions need, and how it is called where the server says what it serves."""

    rule_set: RuleSet
    cluster: Cluster
    rules_by_kind: Mapping[str, int]
    rules_from: str
    cluster_from: str


class UnusableError(Exception):
    """Rules or a cluster with errors: `report` shows every problem with its source line, in file order."""

    def __init__(self, report: str) -> None:
        super().__init__(report)
        self.report = report


def prepare(sources: Sources) -> tuple[Prepared, str]:
    """Read and compile everything, with a report of the warnings. Raises UnusableError."""
    paths = sources.rules or (PACKAGED_RULES,)
    loaded = load(paths)
    rule_set, expressions = compile_rules(loaded.rules)
    cluster, unclear, cluster_lines = load_cluster(sources.cluster or PACKAGED_CLUSTER)
    problems = in_file_order((*loaded.problems, *expressions), loaded.files) + unclear
    lines = {**loaded.sources, **cluster_lines}
    report = "\n".join(render(problem, lines) for problem in problems)
    if cluster is None or any(problem.severity is Severity.ERROR for problem in problems):
        raise UnusableError(report)
    named = " ".join(map(str, sources.rules))
    if not loaded.rules:
        raise UnusableError(f"no rules in {named}: a server without rules would let everything through")
    prepared = Prepared(
        rule_set=rule_set,
        cluster=cluster,
        rules_by_kind=dict(sorted(Counter(rule.kind for rule in loaded.rules).items())),
        rules_from=named or "the packaged set default",
        cluster_from=str(sources.cluster or "the packaged inventory two-workers"),
    )
    return prepared, report
