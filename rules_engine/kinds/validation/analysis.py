"""Problems of valid Validations."""

from collections.abc import Iterator, Sequence

from rules_engine.evaluation.rule_set.globs import is_glob
from rules_engine.kinds.resource_names import name_warnings
from rules_engine.kinds.validation.value import Validation
from rules_engine.model.problems.problem import Problem


def analyse(validations: Sequence[Validation]) -> Iterator[Problem]:
    """Yield warnings about the resources of validations, each on its own."""
    for rule in validations:
        names = [name for name in rule.match.resources if not is_glob(name)]
        place = rule.origin.get(("match", "resources"), rule.location)
        for name in names:
            yield from name_warnings(name, names, place, "resources")
