"""Names of resources that are valid, but that probably no node offers."""

from collections.abc import Iterable, Iterator, Mapping

from rules_engine.model.gpu.mig import MIG_RESOURCE, PROFILES, unknown_profile
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problem, warning
from rules_engine.model.problems.source import Location

_DOMAINS: Mapping[str, str] = {"nvidia": "nvidia.com", "amd": "amd.com"}
"""Domains of the vendors' device plugins, by what is written for them. Others have domains of one word in use."""

_KNOWN = (
    "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/pgpu", "nvidia.com/vgpu",
    "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi",
    *sorted(f"{MIG_RESOURCE}{profile}" for profile in PROFILES),
)  # fmt: skip
"""Resources of device plugins, of which others are taken for misspelt if one letter is wrong."""


def name_warnings(resource: str, beside: Iterable[str], place: Location, marked: str) -> Iterator[Problem]:
    """Yield warnings about the name of a resource, at the text that is `marked`; `beside`: the other names there."""
    domain, _, name = resource.partition("/")
    if domain in _DOMAINS:
        message = f"no device plugin offers {resource} (did you mean '{_DOMAINS[domain]}/{name}'?)"
        yield warning(Code.UNLIKELY_RESOURCE, message, place, marked)
    message = unknown_profile(resource, beside)
    meant = next((known for known in _KNOWN if resource not in _KNOWN and _is_slip(resource, known)), None)
    if message:
        yield warning(Code.UNKNOWN_MIG_PROFILE, message, place, marked)
    elif meant:
        message = f"no device plugin offers {resource} (did you mean '{meant}'?)"
        yield warning(Code.UNLIKELY_RESOURCE, message, place, marked)


def _is_slip(written: str, meant: str) -> bool:
    """Return True if a name differs from another in case, in one letter, or in the order of two."""
    one, other = written.casefold(), meant.casefold()
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == len(other) == 2 and one == other[::-1])
