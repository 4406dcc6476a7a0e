"""Quantities by resource name, and warnings of common mistakes in them."""

import re
from collections.abc import Mapping
from contextlib import suppress

from rules_engine.language.fields import scalar_members
from rules_engine.language.yaml.nodes import MapNode, ScalarNode
from rules_engine.model.kubernetes.quantity import NANOS, Format, Quantity, QuantityError
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import truncate

_FEW_BYTES = Quantity.parse("1Mi")
"""Least plausible memory: no container runs in less, so the unit is missing, or m stands for M."""

_MANY_CORES = Quantity.of(256)
"""Most cpu that a GPU plausibly gets: machines are sold with at most 128 hardware threads for each GPU, and 256 are
a whole server of two 64-core sockets. A larger amount is in millicores without its m."""

_MANY_BYTES = Quantity.parse("2Ti")
"""Most memory that a GPU plausibly gets: machines have at most 1 TiB for each. A larger one has Gi in place of Mi."""

_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3}){1,6}")
_SLIP = re.compile(
    r"([0-9]{1,18}(?:[.,][0-9]{1,9})?|[0-9]{1,3}(?:,[0-9]{3}){1,6})\s{0,9}"
    r"([kmgtpe]i?b?|[kmgtpe]i?bytes|cores?|cpus?|mcpu|millicores?|)",
    re.IGNORECASE,
)
"""A number and a unit that people understand but Kubernetes rejects."""

_BYTES = ("memory", "ephemeral-storage")


def read_amounts(node: MapNode, name: str, problems: Problems) -> dict[str, Quantity]:
    """Read a map of resource names to quantities, parsed from text, never from floats; negative ones are errors."""
    read = {resource: read_quantity(value, problems) for resource, value in scalar_members(node, name)}
    return {resource: amount for resource, amount in read.items() if amount is not None}


def read_quantity(node: ScalarNode, problems: Problems) -> Quantity | None:
    """Read a quantity that is not negative; None, with a problem, if it is invalid."""
    try:
        amount = Quantity.parse(node.source.text)
    except QuantityError as error:
        problems.error(Code.BAD_QUANTITY, _quantity_message(node, error), node)
        return None
    if amount.nanos < 0:
        problems.error(Code.NEGATIVE_QUANTITY, "a quantity cannot be negative here", node)
        return None
    return amount


def warn_of_quantity(node: ScalarNode, problems: Problems) -> None:
    """Warn of a pod's amount that is not a quantity. It is no error, since a test may need a pod that is rejected."""
    try:
        Quantity.parse(node.source.text)
    except QuantityError as error:
        problems.warning(Code.BAD_AMOUNT, _quantity_message(node, error), node)


def _quantity_message(node: ScalarNode, error: QuantityError) -> str:
    text = node.source.text
    candidates = _likely_quantities(text)
    return f"'{truncate(text)}' is not a quantity: write {' or '.join(candidates)}" if candidates else str(error)


def _likely_quantities(text: str) -> tuple[str, ...]:
    """Return the likely quantities of a text with a decimal comma, a space, or the unit of another notation."""
    match = _SLIP.fullmatch(text)
    if match is None:
        return ()
    number, unit = match[1].replace(",", "" if _THOUSANDS.fullmatch(match[1]) else "."), match[2].lower()
    with suppress(QuantityError):
        Quantity.parse(f"{number}{match[2]}")
        return (f"{number}{match[2]}",)
    if unit in ("core", "cores", "cpu", "cpus"):
        return (number,)
    if unit in ("mcpu", "millicore", "millicores"):
        return (f"{number}m",)
    prefix, binary = unit[0].upper(), unit[1:].startswith("i")
    decimal = f"{number}{'k' if prefix == 'K' else prefix}"
    # gb is either: GB as in a card's name, or GiB.
    return (f"{number}{prefix}i",) if binary else (decimal, f"{number}{prefix}i")


def warn_of_units(
    node: MapNode, name: str, quantities: Mapping[str, Quantity], problems: Problems, *, per_gpu: bool = False
) -> None:
    """Warn of implausible quantities of a field; `per_gpu`: they are multiplied by the number of GPUs."""
    for resource, value in scalar_members(node, name):
        amount = quantities.get(resource)
        message = "" if amount is None else _amount_warning(resource, amount, value.source.text, per_gpu)
        if message:
            problems.warning(Code.UNLIKELY_UNIT, message, value)


def _amount_warning(resource: str, amount: Quantity, text: str, per_gpu: bool) -> str:
    if resource == "cpu" and amount.format is Format.BINARY_SI:
        return f"cpu of {text}: cpu is counted in cores (4) or millicores (4000m)"
    if resource in _BYTES and amount and amount < _FEW_BYTES:
        size = f"{amount.whole} byte{'' if amount.whole == 1 else 's'}"
        if amount.nanos < NANOS:
            size = "less than a byte (m is a thousandth)"
        return f"{resource} of {text} is {size}: write Mi or Gi for more"
    if per_gpu and resource == "cpu" and amount > _MANY_CORES:
        unit = f"write {text}m for millicores" if text.isdecimal() else "check its unit"
        return f"cpu of {text} is {amount.whole} cores for each GPU: {unit}"
    if per_gpu and resource == "memory" and amount > _MANY_BYTES:
        return f"memory of {text} for each GPU is more than any machine has for one: check its unit"
    if "/" in resource and not amount.is_whole:
        whole = f"{resource} is given in whole numbers"
        if per_gpu:
            one, two = (part.nanos // NANOS for part in (amount, amount * 2))
            return f"{whole}: {text} times the number of GPUs is rounded down, to {one} for one GPU and {two} for two"
        return f"{whole}: {text} is rounded down to {amount.nanos // NANOS}"
    return ""
