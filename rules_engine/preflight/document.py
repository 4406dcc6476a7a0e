"""Answers of preflight as JSON; schemas/output/preflight.json describes them."""

from collections.abc import Sequence
from typing import Any

from rules_engine.preflight.answer import Answer, WorkloadAnswer
from rules_engine.preflight.state import Verdict
from rules_engine.report.documents import field_members, location_members


def preflight_document(answer: Answer, problems: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the document of `preflight --output json`. `problems`: of its input, as members."""
    return {
        **field_members(answer, "cluster objects started_before"),
        "workloads": [_workload_members(each) for each in answer.workloads],
        "problems": problems,
    }


def _workload_members(each: WorkloadAnswer) -> dict[str, Any]:
    return {
        **field_members(each, "kind name namespace"),
        "source": location_members(each.location),
        "verdict": each.verdict.value,
        **field_members(each, "pods started starts equal_nodes evicted first"),
        "falls": [
            {
                "rule": fallen.fall.rule,
                "source": location_members(fallen.location),
                "requested": fallen.fall.requested,
                "given": fallen.fall.given,
                "pods": fallen.pods,
            }
            for fallen in each.falls
        ],
        "stopped": [
            {
                "verdict": stopped.verdict.value,
                **field_members(stopped, "pods message"),
                "finding": None
                if stopped.finding is None
                else field_members(stopped.finding, "reason certainty message cause evidence"),
            }
            for stopped in each.stopped
        ],
        "wouldStart": [field_members(change, "kind text pods ends") for change in each.changes],
        "rungs": [
            {"request": rung.request, "pods": {verdict.value: rung.pods.get(verdict, 0) for verdict in Verdict}}
            for rung in each.rungs
        ],
        **field_members(each, "notices"),
    }
