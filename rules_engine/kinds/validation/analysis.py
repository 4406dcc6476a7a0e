"""Problems of validations that are valid each on their own."""

from collections.abc import Iterator, Sequence

from rules_engine.kinds.validation.problem_codes import ValidationCode
from rules_engine.kinds.validation.value import Validation
from rules_engine.model.problems import Problem, warning


def analyse(validations: Sequence[Validation]) -> Iterator[Problem]:
    """Yield warnings about validations, each on its own."""
    for rule in validations:
        if not (rule.match.resources or rule.match.object_selector or _some_namespaces(rule)):
            message = (
                f"every pod is sent to /validate because of {rule.id}: limit it by match.resources, match.namespaces "
                "or match.objectSelector"
            )
            yield warning(ValidationCode.EVERY_POD, message, rule.location, rule.name)


def _some_namespaces(rule: Validation) -> bool:
    return "*" not in rule.match.namespaces or bool(rule.match.exclude_namespaces)
