"""Answers as JSON, described by schemas/output/diff.json.

A change lists its workloads, not a workload its changes: a change of thousands of containers in thousands of workloads
is written once, in one line.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rules_engine.difference.answer import Answer
from rules_engine.difference.comparison import differing_rules
from rules_engine.difference.grouping import Totals
from rules_engine.difference.values import Change, Contribution, Kind, Line, Outcome
from rules_engine.model.kubernetes.quantity import base_units
from rules_engine.report.documents import Dump, field_members, location_members, object_parts


def difference_document(answer: Answer, dump: Dump, problems: Sequence[Any] = ()) -> Iterator[str]:
    """Yield the parts of the document of `diff --output json`; `problems`: those of its input, as members."""
    grouping, recorded = answer.grouping, answer.recorded
    summary = {
        **field_members(answer, "old new same_rules without_rules"),
        "assumedCluster": answer.assumed_cluster or None,
        "allowed": _kind_names(answer.allowed),
        "exitCode": answer.exit_code,
        "clusters": [_totals_members(name, totals, answer.allowed) for name, totals in grouping.totals.items()],
        "recorded": None
        if recorded is None
        else {
            **field_members(recorded, "lines admissions replayed later_calls"),
            **_sorted_counts(recorded, "not_replayable unreadable"),
        },
        "omittedPods": grouping.omitted,
        "problems": problems,
    }
    yield from object_parts(summary, {"changes": map(_change_members, _group_equal_changes(grouping.lines))}, dump)
    yield "\n"


def _group_equal_changes(lines: Iterable[Line]) -> Iterable[Sequence[Line]]:
    """Return the lines in groups of equal changes; a Grouping stores equal changes once."""
    groups: dict[int, list[Line]] = {}
    for line in lines:
        groups.setdefault(id(line.change), []).append(line)
    return groups.values()


def _kind_names(kinds: Iterable[Kind]) -> list[str]:
    kind_set = frozenset(kinds)
    return [kind.value for kind in Kind if kind in kind_set]


def _totals_members(name: str, totals: Totals, allowed: frozenset[Kind]) -> dict[str, Any]:
    return {
        "name": name,
        **field_members(totals, "pods changed"),
        "beyondAllowed": totals.disallowed_pods(allowed),
        "asTheyAreNow": dict(sorted(totals.as_it_is.items())),
        **field_members(totals, "kinds"),
        **_sorted_counts(totals, "namespaces rules unknown"),
        "gpus": {
            resource: {"before": base_units(before), "after": base_units(after)}
            for resource, (before, after) in totals.gpus.items()
        },
    }


def _sorted_counts(value: object, names: str) -> dict[str, Any]:
    """Return the named counters as members, each sorted by key."""
    return {name: dict(sorted(counts.items())) for name, counts in field_members(value, names).items()}


def _change_members(lines: Sequence[Line]) -> dict[str, Any]:
    change = lines[0].change
    return {
        "kinds": _kind_names(change.kinds),
        "rules": _rule_members(change),
        "before": _outcome_members(change.before),
        "after": _outcome_members(change.after),
        "workloads": [
            {**field_members(line.workload, "cluster namespace kind name"), "pods": line.count} for line in lines
        ],
    }


def _rule_members(change: Change) -> list[dict[str, Any]]:
    before, after = (
        {deciding.rule: location_members(deciding.location) for deciding in outcome.deciding}
        for outcome in (change.before, change.after)
    )
    return [{"rule": rule, "before": before.get(rule), "after": after.get(rule)} for rule in differing_rules(change)]


def _outcome_members(outcome: Outcome) -> dict[str, Any]:
    return {
        "unknown": outcome.unknown or None,
        "allowed": None if outcome.unknown else outcome.allowed,
        "message": outcome.message or None,
        "resources": [field_members(amount, "container resource request limit") for amount in outcome.resources],
        "annotations": dict(outcome.annotations),
        "warnings": list(outcome.warnings),
        "gpus": {resource: base_units(nanos) for resource, nanos in outcome.gpus},
        "rules": [_contribution_members(deciding) for deciding in outcome.deciding],
    }


def _contribution_members(deciding: Contribution) -> dict[str, Any]:
    return {
        "rule": deciding.rule,
        "source": location_members(deciding.location),
        "action": deciding.action.value,
        "message": deciding.message or None,
        "fallbacks": [field_members(fallback, "requested given") for fallback in deciding.fallbacks],
        "amounts": [
            {"container": container, "resource": resource, "amount": amount}
            for container, resource, amount in deciding.amounts
        ],
        "annotations": dict(deciding.annotations),
        "warnings": list(deciding.warnings),
    }
