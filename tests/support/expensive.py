"""Pods that are expensive to decide on, in sizes up to slightly above the bounds."""

from typing import Any

from hypothesis import strategies as st

from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.placement import MAX_REQUIREMENTS, MAX_TERMS, MAX_TOLERATIONS
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from tests.support.authoring import validation
from tests.support.evaluation import GPU, MIG1, MIG2, container, pod
from tests.support.placing import requiring

TYPED = {"task.bkbcs.tencent.com/gpu-type": "V100"}
KEYS = ("zone", "host", "stamp", "none")
"""Labels that terms refer to."""

SLOW_RULE = validation(
    "slow",
    "variables.many.all(a, variables.many.all(b, a + b >= 0))",
    message="never",
    failurePolicy="Ignore",
    variables='[{name: many, expression: "lists.range(700)"}]',
)
"""Expression whose cost is just under the bound."""


@st.composite
def expensive_specs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw placement fields, in sizes up to slightly above the bounds."""

    def size(most: int) -> int:
        """Draw a size, sometimes a small one: a part is expensive only if the others let it be evaluated."""
        return draw(st.integers(0, 3) | st.integers(0, most) | st.sampled_from([most, most + 1]))

    def one(values: int) -> dict[str, Json]:
        operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
        start = draw(st.integers(0, 2000))
        chosen: list[Json] = [str(start + number) for number in range(values)]
        if operator in ("Gt", "Lt"):
            chosen = chosen[:1]
        return {"key": draw(st.sampled_from(KEYS)), "operator": operator, "values": chosen}

    terms = size(MAX_TERMS)
    # Repeated values are drawn once and then counted up.
    kinds = [
        {
            "matchExpressions": [one(size(MAX_REQUIREMENTS // (terms + 1)))] * draw(st.integers(0, 3)),
            "matchFields": [{**one(size(20)), "key": "metadata.name"}] * draw(st.integers(0, 1)),
        }
        for _ in range(3)
    ]
    spec: dict[str, Any] = {
        "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(size(MAX_TOLERATIONS))],
        "nodeSelector": {
            f"l{number}": "x" for number in range(0 if draw(st.integers(0, 3)) else size(MAX_REQUIREMENTS))
        },
    }
    if draw(st.integers(0, 3)):
        spec |= requiring(*(kinds[number % 3] for number in range(terms)))
    return spec


@st.composite
def expensive_pods(draw: st.DrawFn) -> dict[str, Json]:
    """Draw a pod that may be large in every way at once."""
    containers = draw(st.integers(1, 3) | st.sampled_from([MAX_CONTAINERS - 1, MAX_CONTAINERS, MAX_CONTAINERS + 1]))
    init = draw(st.integers(0, 2))
    device = draw(st.sampled_from([{MIG2: 1}, {MIG1: 1, GPU: 1}, {}]))
    many = draw(st.sampled_from([0, 10, 5_000]))
    long = "x" * draw(st.sampled_from([0, 60, 2_000]))
    made: Any = pod(
        *(container(f"c{number}{long}", device) for number in range(containers)),
        init=[container(f"i{number}", device) for number in range(init)],
        labels={f"l{number}": "x" for number in range(many)},
        annotations={f"a{number}": "x" for number in range(many)} | draw(st.sampled_from([{}, TYPED])),
        **draw(expensive_specs()),
    )
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"o{number}"} for number in range(many)]
    return made  # type: ignore[no-any-return]
