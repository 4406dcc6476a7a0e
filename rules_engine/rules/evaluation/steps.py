"""The steps that rules of every kind may leave in a trace."""

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, Unpack

from rules_engine.language.cel import EvaluationError
from rules_engine.model.json.edits import Edits, patch_bytes
from rules_engine.model.json.strict import PodError
from rules_engine.model.kubernetes.quantity import QuantityError
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.decision import (
    EVALUATION_ERROR,
    Action,
    AddedMember,
    Amount,
    ContainerRequest,
    ResourceDecision,
    Step,
)
from rules_engine.model.rules.rule import FailurePolicy, Mode, Rule
from rules_engine.rules.rule_set.context import UnknownClusterError

MAX_PATCH_BYTES = 1024 * 1024
"""Largest JSON Patch of one pod. An API server stores objects of 1.5 MiB at most (etcd, --max-request-bytes), so that
no pod with a larger patch could be stored."""


class Details(TypedDict, total=False):
    """The optional members of a step; see Step."""

    code: int
    status_reason: str
    warnings: tuple[str, ...]
    requests: tuple[ContainerRequest, ...]
    resources: tuple[ResourceDecision, ...]
    amounts: tuple[Amount, ...]
    annotations: Mapping[str, str]
    members: tuple[AddedMember, ...]
    notes: tuple[str, ...]
    recorded: bool
    cluster_unknown: bool
    fields: tuple[Field, ...]


def rule_step(rule: Rule, action: Action, reason: str, message: str, **details: Unpack[Details]) -> Step:
    """Return the step of a rule: its action, or in audit mode the action that it would have taken."""
    return Step(
        rule=rule.id,
        location=rule.location,
        action=action,
        reason=reason,
        message=message,
        audit=rule.mode is Mode.AUDIT,
        **details,
    )


def skip_step(rule: Rule, reason: str, message: str, fields: tuple[Field, ...] = ()) -> Step:
    """Return the step of a rule that does not apply because of these fields."""
    return rule_step(rule, Action.SKIP, reason, message, fields=fields)


def patch_size_error(edits: Edits, before: int = 0) -> EvaluationError | None:
    """Return the error of a rule whose edits exceed MAX_PATCH_BYTES; `before`: bytes that other rules write."""
    size = before + patch_bytes(edits)
    if size <= MAX_PATCH_BYTES:
        return None
    return EvaluationError(f"the patch would take {size} bytes, more than {MAX_PATCH_BYTES}")


def _error_text(error: Exception) -> str:
    """Return the text of a rule's error; for a bug its place, without the message, which might quote the pod.

    Raises the error itself if the pod is malformed, since no rule can be evaluated on it.
    """
    if isinstance(error, EvaluationError):
        return str(error)
    if isinstance(error, PodError | QuantityError):
        raise error
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"unexpected {type(error).__name__} at {Path(last.filename).name}:{last.lineno}"


def failure_step(rule: Rule, error: Exception) -> Step:
    """Return the step of a rule that could not be evaluated: by its failurePolicy it denies, or the rule is undone.

    Raises PodError and QuantityError.
    """
    message = _error_text(error)
    fields = rule.fields_at(error.location) if isinstance(error, EvaluationError) else ()
    unknown = isinstance(error, UnknownClusterError)
    if rule.failure_policy is FailurePolicy.IGNORE:
        warning = f"{rule.id} was ignored: {message}"
        details: Details = {"warnings": (warning,), "fields": fields, "cluster_unknown": unknown}
        return rule_step(rule, Action.IGNORE, EVALUATION_ERROR, message, **details)
    details = {"code": 500, "status_reason": "InternalError", "fields": fields, "cluster_unknown": unknown}
    return rule_step(rule, Action.DENY, EVALUATION_ERROR, f"could not be evaluated: {message}", **details)
