"""Wording of simulations that several formats share: amounts, times and names of arrivals."""

from fractions import Fraction

from rules_engine.accelerators.resources import is_gpu, short_name
from rules_engine.model import wording
from rules_engine.model.kubernetes.names import object_title
from rules_engine.model.kubernetes.quantity import NANOS
from rules_engine.model.wording import format_duration
from rules_engine.questions.simulate.answer import PodResult
from rules_engine.questions.simulate.record import NOT_ADMITTED
from rules_engine.questions.simulate.totals import Units, UnitsByResource

BEGINNING = "at the beginning"
"""Title of pods that existed at the beginning."""


def format_amount(resource: str, amount: Units) -> str:
    """Return an amount of cores, bytes or devices."""
    return wording.format_amount(resource, round(amount * NANOS))


def format_seconds(seconds: Units | Fraction) -> str:
    """Return a time with its two largest units."""
    return format_duration(round(seconds * 1000))


def format_gpus(amounts: UnitsByResource) -> str:
    """Return the GPUs in amounts; all amounts if there are no GPUs."""
    gpus = {name: held for name, held in amounts.items() if held and is_gpu(name)}
    chosen = gpus or {name: held for name, held in amounts.items() if held}
    texts = [f"{format_amount(name, held)} × {short_name(name)}" for name, held in sorted(chosen.items())]
    return ", ".join(texts) or "nothing"


def format_request(pod: PodResult) -> str:
    """Return the GPUs that a pod requested, and the GPUs it was given if they differ: "requested → given"."""
    requested, given = format_gpus(pod.requested), format_gpus(pod.given)
    return requested if requested == given or pod.state in NOT_ADMITTED else f"{requested} → {given}"


def arrival_title(title: str, namespace: str) -> str:
    """Return the title of what arrived, whose own is Kind/name."""
    kind, _, name = title.partition("/")
    return object_title(kind, name, namespace)
