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
                f"{rule.id} is about every pod, so that the API server sends every pod to /validate: match.resources "
                "limits it to pods that name a resource"
            )
            yield warning(ValidationCode.EVERY_POD, message, rule.location, rule.name)


def _some_namespaces(rule: Validation) -> bool:
    return "*" not in rule.match.namespaces or bool(rule.match.exclude_namespaces)
