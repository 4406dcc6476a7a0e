"""Problems of valid PodDefaults, alone and on a cluster."""

from collections.abc import Iterator, Sequence

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.problems.problem import Problem
from rules_engine.rules.entries import warn_of_entries
from rules_engine.rules.pod_defaults.value import PodDefaults
from rules_engine.rules.resource_names import name_warnings
from rules_engine.rules.rule_set.globs import is_glob


def analyse(rules: Sequence[PodDefaults]) -> Iterator[Problem]:
    """Yield warnings about rules that are loaded together, in the order of evaluation."""
    for rule in rules:
        yield from warn_of_entries(rule)
        place = rule.origin.get(("match", "resources"), rule.location)
        names = [name for name in rule.match.resources if not is_glob(name)]
        for name in names:
            yield from name_warnings(name, names, place, "resources")


def analyse_on(rules: Sequence[PodDefaults], cluster: Cluster) -> Iterator[Problem]:
    """Yield warnings about what a cluster does not have."""
    yield from ()
