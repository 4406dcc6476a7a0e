"""Names of resources that are valid, but that probably no node offers."""

from collections.abc import Iterable, Iterator, Mapping

from rules_engine.model.mig_profiles import unknown_profile
from rules_engine.model.problem_codes import Code
from rules_engine.model.problems import Problem, warning
from rules_engine.model.source import Location

_DOMAINS: Mapping[str, str] = {"nvidia": "nvidia.com", "amd": "amd.com"}
"""Domains of the vendors' device plugins, by what is written for them. Others have domains of one word in use."""


def name_warnings(resource: str, beside: Iterable[str], place: Location, marked: str) -> Iterator[Problem]:
    """Yield warnings about the name of a resource, at the text that is `marked`; `beside`: the other names there."""
    domain, _, name = resource.partition("/")
    if domain in _DOMAINS:
        message = f"no device plugin offers {resource} (did you mean '{_DOMAINS[domain]}/{name}'?)"
        yield warning(Code.UNLIKELY_RESOURCE, message, place, marked)
    message = unknown_profile(resource, beside)
    if message:
        yield warning(Code.UNKNOWN_MIG_PROFILE, message, place, marked)
