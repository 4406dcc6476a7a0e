"""Warnings about valid names of resources that probably no node offers."""

from collections.abc import Iterable, Iterator, Mapping

from rules_engine.model.mig import MIG_RESOURCE, PROFILES, profile_message
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.problems.source import Location

_VENDOR_DOMAINS: Mapping[str, str] = {"nvidia": "nvidia.com", "amd": "amd.com"}
"""Domains of the vendors' device plugins, by their misspelling. Other vendors do use domains of one word."""

_PLUGIN_RESOURCES = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/pgpu", "nvidia.com/vgpu",
    "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi",
    *sorted(f"{MIG_RESOURCE}{profile}" for profile in PROFILES),
)  # fmt: skip
"""Resources of device plugins: a name that differs in one letter is probably a misspelling."""


def name_warnings(resource: str, beside: Iterable[str], place: Location, marked: str) -> Iterator[Problem]:
    """Yield warnings about the name of a resource, with the text `marked` at `place`; `beside`: related resources."""
    domain, _, name = resource.partition("/")
    if domain in _VENDOR_DOMAINS:
        message = f"no device plugin offers {resource} (did you mean '{_VENDOR_DOMAINS[domain]}/{name}'?)"
        yield warning(Code.UNLIKELY_RESOURCE, message, place, marked)
    message = profile_message(resource, beside)
    suggestion = next(
        (name for name in _PLUGIN_RESOURCES if resource not in _PLUGIN_RESOURCES and _is_misspelt(resource, name)), None
    )
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
