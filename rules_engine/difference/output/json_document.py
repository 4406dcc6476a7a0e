"""Answers as JSON; schemas/output/diff.json describes them.

Each change has its workloads, rather than each workload its change: a change with thousands of containers, of
thousands of workloads, is written once. The text is written in parts, a change in one line: all of them together are
never one value in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rules_engine.difference.answer import Answer, InForce
from rules_engine.difference.comparison import rules_of
from rules_engine.difference.grouping import Totals
from rules_engine.difference.recorded_totals import RecordedTotals
from rules_engine.difference.values import Amount, Change, Deciding, Kind, Line, Outcome, Workload
from rules_engine.model.quantity import Quantity, base_units

Dump = Callable[[Any], str]
"""A function that returns JSON in one line."""


def json_document(answer: Answer, dump: Dump) -> Iterator[str]:
    """Yield the parts of the document of `diff --output json`."""
    grouping = answer.grouping
    members = {
        "old": answer.old,
        "new": answer.new,
        "sameRules": answer.same_rules,
        "withoutRules": answer.without_rules,
        "inForce": None if answer.in_force is None else _in_force(answer.in_force),
        "assumedCluster": answer.assumed_cluster or None,
        "allowed": _kinds(answer.allowed),
        "exitCode": answer.exit_code,
        "clusters": [_totals(name, totals, answer.allowed) for name, totals in grouping.totals.items()],
        "recorded": None if answer.recorded is None else _recorded(answer.recorded),
        "omittedPods": grouping.omitted,
    }
    yield "{\n"
    for name, value in members.items():
        yield f"{dump(name)}: {dump(value)},\n"
    yield '"changes": ['
    for index, lines in enumerate(_equal_changes(grouping.lines)):
        yield ",\n" if index else "\n"
        yield dump(_change(lines))
    yield "\n]\n}\n"


def _in_force(found: InForce) -> dict[str, Any]:
    return {"url": found.url, "digest": found.digest, "side": found.side.value}


def _equal_changes(lines: Iterable[Line]) -> Iterable[Sequence[Line]]:
    """Return the lines in groups of equal changes, which a Grouping stores once."""
    found: dict[int, list[Line]] = {}
    for line in lines:
        found.setdefault(id(line.change), []).append(line)
    return found.values()


def _kinds(kinds: Iterable[Kind]) -> list[str]:
    found = frozenset(kinds)
    return [kind.value for kind in Kind if kind in found]


def _totals(name: str, totals: Totals, allowed: frozenset[Kind]) -> dict[str, Any]:
    return {
        "name": name,
        "pods": totals.pods,
        "changed": totals.changed,
        "beyondAllowed": totals.beyond(allowed),
        "asTheyAreNow": _sorted(totals.as_it_is),
        "kinds": {kind.value: count for kind, count in totals.kinds.items()},
        "namespaces": _sorted(totals.namespaces),
        "rules": _sorted(totals.rules),
        "unknown": _sorted(totals.unknown),
        "gpus": {
            resource: {"before": base_units(before), "after": base_units(after)}
            for resource, (before, after) in totals.gpus.items()
        },
    }


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _recorded(totals: RecordedTotals) -> dict[str, Any]:
    return {
        "lines": totals.lines,
        "admissions": totals.admissions,
        "replayed": totals.replayed,
        "otherRules": totals.other_rules,
        "differing": totals.differing,
        "laterCalls": totals.later_calls,
        "notReplayable": _sorted(totals.not_replayable),
        "unreadable": _sorted(totals.unreadable),
    }


def _change(lines: Sequence[Line]) -> dict[str, Any]:
    change = lines[0].change
    return {
        "kinds": _kinds(change.kinds),
        "rules": _rules(change),
        "before": _outcome(change.before),
        "after": _outcome(change.after),
        "workloads": [_workload(line.workload, line.count) for line in lines],
    }


def _workload(workload: Workload, count: int) -> dict[str, Any]:
    return {
        "cluster": workload.cluster,
        "namespace": workload.namespace,
        "kind": workload.kind,
        "name": workload.name,
        "pods": count,
    }


def _rules(change: Change) -> list[dict[str, Any]]:
    before, after = (
        {deciding.rule: str(deciding.location) for deciding in outcome.deciding}
        for outcome in (change.before, change.after)
    )
    return [{"rule": rule, "before": before.get(rule), "after": after.get(rule)} for rule in rules_of(change)]


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "unknown": outcome.unknown or None,
        "allowed": None if outcome.unknown else outcome.allowed,
        "message": outcome.message or None,
        "resources": [_amount(amount) for amount in outcome.resources],
        "annotations": dict(outcome.annotations),
        "warnings": list(outcome.warnings),
        "gpus": {resource: base_units(nanos) for resource, nanos in outcome.gpus},
        "rules": [_deciding(deciding) for deciding in outcome.deciding],
    }


def _amount(amount: Amount) -> dict[str, Any]:
    return {
        "container": amount.container,
        "resource": amount.resource,
        "request": _quantity(amount.request),
        "limit": _quantity(amount.limit),
    }


def _quantity(quantity: Quantity | None) -> str | None:
    return None if quantity is None else str(quantity)


def _deciding(deciding: Deciding) -> dict[str, Any]:
    return {
        "rule": deciding.rule,
        "source": str(deciding.location),
        "action": deciding.action.value,
        "message": deciding.message or None,
        "falls": [{"requested": fall.requested, "given": fall.given} for fall in deciding.falls],
        "amounts": [
            {"container": container, "resource": resource, "amount": amount}
            for container, resource, amount in deciding.amounts
        ],
        "annotations": dict(deciding.annotations),
        "warnings": list(deciding.warnings),
    }
