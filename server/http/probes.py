"""Health, readiness and rules as HTTP status and JSON."""

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, TypeAlias

from rules_engine.model.kubernetes.cluster import Freshness
from rules_engine.server.http.limits import STALLED_SECONDS
from rules_engine.server.state import ServerState
from rules_engine.server.timing import rfc3339

Page: TypeAlias = tuple[HTTPStatus, dict[str, Any]]

MAX_LISTED = 1_000
"""Rules in `GET /rules`."""

OVERPROMISES = (
    "no devices are reserved for admitted pods, so a burst of pods may be given more devices than are free: "
    "set --client-ca, or --reserve-for all"
)


def health_page(state: ServerState) -> Page:
    """Return the liveness report; 503 while the event loop is blocked."""
    if state.last_heartbeat is not None and monotonic() - state.last_heartbeat() > STALLED_SECONDS:
        reason = f"the event loop has been blocked for more than {STALLED_SECONDS:g} s"
        return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "stalled", "reason": reason}
    return HTTPStatus.OK, {"status": "ok"}


def readiness_page(state: ServerState, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Page:
    """Return the readiness report. A stale view is ready: an outage of the API server must not empty the Service."""
    reason = state.readiness_problem(clock())
    if reason is not None:
        return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "reason": reason}
    stale = state.cluster.freshness is Freshness.STALE
    report: dict[str, Any] = {"status": "ok", "cluster": "stale" if stale else "synced"}
    warnings = [*_rule_problems(state), *([OVERPROMISES] if state.overpromises else ()), *state.source.absent]
    if warnings:
        report["warnings"] = warnings
    return HTTPStatus.OK, report


def _rule_problems(state: ServerState) -> list[str]:
    unwritten = state.offers and state.offers.problem
    problems = [problem for problem in (unwritten, state.keep_problem) if problem]
    if state.last_reload is not None and state.last_reload.refused:
        first, *others = state.last_reload.refused
        kept = "; the rules kept before the start are active" if state.served.kept else ""
        more = f" and {len(others)} more" if others else ""
        problems.append(f"rule files refused at {rfc3339(state.last_reload.at)}{kept}: {first}{more}")
    return problems


def rules_page(state: ServerState) -> Page:
    """Return the active rules, the result of the last reload, and the drift of the webhook configurations."""
    served, reload = state.served, state.last_reload
    report: dict[str, Any] = {
        "generation": served.generation,
        "digest": served.digest,
        "mode": "Audit" if state.audit else "Enforce",
        "namespaces": state.namespaces,
        "since": rfc3339(served.since),
        "rulesByKind": served.rules_by_kind,
        "rules": [
            {"kind": rule.kind, "name": rule.name, "mode": rule.mode.value, "priority": rule.priority}
            for rule in served.listed[:MAX_LISTED]
        ],
        "lastReload": None,
        "webhooks": None,
        "offers": None,
    }
    if reload is not None:
        report["lastReload"] = {
            "at": rfc3339(reload.at),
            "successful": reload.refused is None,
            "digest": reload.digest,
            "refused": reload.refused,
        }
    if (offers := state.offers) is not None:
        at = rfc3339(offers.at)
        report["offers"] = {"name": offers.name, "at": at, "omitted": offers.omitted, "problem": offers.problem}
    if state.webhooks is not None:
        report["webhooks"] = {
            endpoint: {
                "configuration": compared.configuration,
                "generation": compared.generation,
                "at": None if compared.at is None else rfc3339(compared.at),
                "differences": compared.differences,
                "remedy": compared.fix_command,
                "problem": compared.problem,
            }
            for endpoint, compared in state.webhooks.items()
        }
    return HTTPStatus.OK, report
