"""The engine agrees with second implementations, written from the documents alone."""

from typing import Any

from hypothesis import example, given

from rules_engine.rules.injection.value import GPU_TYPE_ANNOTATION
from tests.models.generated import claims, injections, ladders, quantities

INJECTION = {
    "name": "a",
    "priority": 0,
    "mode": "Enforce",
    "gpuType": None,
    "gpuTypeAnnotation": GPU_TYPE_ANNOTATION,
    "gpuResource": "nvidia.com/gpu",
    "annotations": {},
    "namespaces": {},
}


@given(claims.cases())
def test_claims_agree_with_their_model(case: Any) -> None:
    claims.check(case)


@given(ladders.cases())
def test_ladders_agree_with_their_model(case: Any) -> None:
    ladders.check(case)


@given(injections.cases())
@example(
    {
        "rules": [
            INJECTION | {"onConflict": "Overwrite", "initContainers": "Inject", "coefficients": {"memory": "1500m"}}
        ],
        "pod": {
            "metadata": {"annotations": {GPU_TYPE_ANNOTATION: "V100"}},
            "spec": {
                "containers": [{"name": "main"}],
                "initContainers": [{"name": "init", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
            },
        },
        "namespace": "ml",
    }
)
@example(
    {
        "rules": [
            INJECTION
            | {"onConflict": "Keep", "initContainers": "Ignore", "coefficients": {"hugepages-2Mi": "0", "cpu": "0"}}
        ],
        "pod": {
            "metadata": {},
            "spec": {
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                "resources": {"limits": {"cpu": "0"}},
            },
        },
        "namespace": "ml",
    }
)
def test_injections_agree_with_their_model(case: Any) -> None:
    injections.check(case)


@given(quantities.cases())
def test_quantities_agree_with_their_model(case: Any) -> None:
    quantities.check(case)
