"""Answers of preflight as JSON; schemas/output/preflight.json describes them."""

from collections.abc import Sequence
from typing import Any

from rules_engine.preflight.answer import Answer, WorkloadAnswer
from rules_engine.report.documents import field_members


def preflight_document(answer: Answer, problems: Sequence[Any]) -> dict[str, Any]:
    """Return the document of `preflight --output json`. `problems`: of its input, as members."""
    return {
        **field_members(answer, "cluster objects started_before"),
        "workloads": [_workload_members(each) for each in answer.workloads],
        "problems": problems,
    }


def _workload_members(each: WorkloadAnswer) -> dict[str, Any]:
    names = "kind name namespace source verdict pods started starts equal_nodes evicted decided_first notices"
    return {
        **field_members(each, names),
        "moves": [field_members(move, "rule source requested given pods") for move in each.moves],
        "stopped": [
            {
                **field_members(stopped, "verdict pods message"),
                "finding": stopped.finding and field_members(stopped.finding, _FINDING),
            }
            for stopped in each.stopped
        ],
        "wouldStart": [field_members(change, "kind text pods ends") for change in each.would_start],
    }


_FINDING = "reason certainty message cause evidence"
