"""Response and log line are bounded, however expensive the pod is."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.rules.decision import CHANGED
from rules_engine.model.rules.rule import FailurePolicy
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.steps import MAX_PATCH_BYTES
from rules_engine.server.http.admission_record import AdmissionRecord
from rules_engine.server.http.review import MAX_AUDIT_VALUE, MAX_MESSAGE, MAX_WARNINGS_BYTES, respond_decision
from rules_engine.server.telemetry.decision_log import MAX_LINE_BYTES, encode_line
from tests.support.evaluation import (
    GPU,
    MIG1,
    MIG2,
    check,
    cluster,
    compiled,
    container,
    injection,
    ladder,
    pod,
    rung,
    validation,
)
from tests.support.expensive import TYPED, expensive_pods
from tests.support.states import state_of
from tests.support.telemetry import admission_record

ANNOTATION = "example.com/falls"
ANSWER_BYTES = MAX_PATCH_BYTES * 4 // 3 + MAX_WARNINGS_BYTES + 4 * (MAX_MESSAGE + MAX_AUDIT_VALUE) + 1024
"""Maximum size of a patch in base64, warnings, a message, an audit annotation and the envelope."""
QUOTES = check("false", message_expression="object.spec.containers.map(c, c.name).join(', ')")


def rules(policy: FailurePolicy) -> RuleSet:
    return compiled(
        ladder(MIG2, MIG1, rung(GPU, assume=True), annotation=ANNOTATION, failure_policy=policy),
        injection({"cpu": 1, "memory": "1Gi"}, failure_policy=policy),
        validation(QUOTES, failure_policy=policy),
    )


def sizes(record: AdmissionRecord) -> tuple[int, int]:
    """Return the bytes of the response and of the log line."""
    assert record.decision is not None
    encoded = encode_line(record, record.decision, id="1", at=datetime.now(UTC), view=1)
    return len(respond_decision("1", record.decision)), len(encoded.text)


@given(expensive_pods(), st.sampled_from([0, 6, 10]), st.sampled_from(FailurePolicy))
def test_the_answer_and_the_line_about_a_pod_are_bounded(made: Any, tenths: int, policy: FailurePolicy) -> None:
    made["metadata"]["annotations"][ANNOTATION] = "x" * (MAX_PATCH_BYTES * tenths // 10)
    for path in ("/mutate", "/validate"):
        answer, encoded = sizes(admission_record(path, made, state=state_of(rules(policy), cluster())))
        assert answer <= ANSWER_BYTES
        assert encoded <= MAX_LINE_BYTES


def test_the_largest_patch_is_sent_completely() -> None:
    made: Any = pod(container("main", {MIG2: 1}), annotations={**TYPED, ANNOTATION: "x" * (MAX_PATCH_BYTES - 2_000)})
    record = admission_record("/mutate", made, state=state_of(rules(FailurePolicy.FAIL), cluster()))
    assert record.outcome == CHANGED
    assert sizes(record)[0] > MAX_PATCH_BYTES * 4 // 3 - 4_000
