"""Random parts of delays, so that replicas do not act in step."""

from collections.abc import Callable
from random import SystemRandom

random = SystemRandom().random
"""Generator of numbers from 0 to 1. Threads must not use the global one, whose sequence belongs to the code that seeds
it, such as Hypothesis."""


def jittered(seconds: float, random: Callable[[], float] = random) -> float:
    """Return a duration, give or take a fifth."""
    return seconds * (0.8 + 0.4 * random())
