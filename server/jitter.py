"""Random parts of delays, so that replicas do not act in step."""

from collections.abc import Callable
from random import SystemRandom

random = SystemRandom().random
"""Return a number from 0 to 1. The global generator is left alone: its sequence belongs to whoever seeds it, such as
Hypothesis."""


def jittered(seconds: float, random: Callable[[], float] = random) -> float:
    """Return a duration, give or take a fifth."""
    return seconds * (0.8 + 0.4 * random())
