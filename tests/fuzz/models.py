"""Comparison of the engine with its second implementations on generated cases, for a given time."""

import time
import traceback
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.models.generated import injections, ladders, pod_defaults, quantities

BATCH = 200
"""Cases between two checks of the time."""

MODELS = (ladders, pod_defaults, injections, quantities)

_FUZZING = settings(
    max_examples=BATCH,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def run(seconds: float, seed: int) -> list[str]:
    """Compare the engine with the models, each for a share of the time; return shrunk cases in which they differ."""
    return [text for model in MODELS for text in search(model.check, model.cases(), seconds / len(MODELS), seed)]


def search(check: Callable[[Any], None], cases: st.SearchStrategy[Any], seconds: float, seed: int) -> list[str]:
    """Return the first failure that is found within the time, shrunk, as text; shrinking may take longer."""

    @_FUZZING
    @given(cases)
    def checked(case: Any) -> None:
        check(case)

    deadline = time.monotonic() + seconds
    batch = 0
    while time.monotonic() < deadline:
        try:
            seeded(f"{seed}/{batch}")(checked)()
        except Exception as error:
            return ["".join(traceback.format_exception(error))]
        batch += 1
    return []
