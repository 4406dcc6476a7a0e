"""Warnings about valid names of resources that probably no node offers."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from rules_engine.accelerators.catalogue import catalogue
from rules_engine.accelerators.mig import profile_message
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.problems.source import Location


def name_warnings(resource: str, beside: Iterable[str], place: Location, marked: str) -> Iterator[Problem]:
    """Yield warnings about the name of a resource, with the text `marked` at `place`; `beside`: related resources."""
    vendor, _, name = resource.partition("/")
    domain = next((each.domains[0] for each in catalogue().vendors if each.domains and each.name.lower() == vendor), "")
    if domain:
        message = f"no device plugin offers {resource} (did you mean '{domain}/{name}'?)"
        yield warning(Code.UNLIKELY_RESOURCE, message, place, marked)
    message = profile_message(resource, beside)
    names = catalogue().resources
    known = any(fnmatchcase(resource, name) for name in names)
    suggestion = next((name for name in names if not known and _is_misspelt(resource, name)), None)
    if message:
        yield warning(Code.UNKNOWN_MIG_PROFILE, message, place, marked)
    elif suggestion:
        message = f"no device plugin offers {resource} (did you mean '{suggestion}'?)"
        yield warning(Code.UNLIKELY_RESOURCE, message, place, marked)


def _is_misspelt(name: str, other: str) -> bool:
    """Return True if two names differ in case, in one letter, or in the order of two letters."""
    left, right = name.casefold(), other.casefold()
    while left and right and left[0] == right[0]:
        left, right = left[1:], right[1:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return max(len(left), len(right)) <= 1 or (len(left) == len(right) == 2 and left == right[::-1])
