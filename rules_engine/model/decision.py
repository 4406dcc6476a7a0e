"""What was decided for one request, and why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeVar

from rules_engine.model.json.edits import Edits, applied
from rules_engine.model.json.patch import Json, Operation
from rules_engine.model.record import record
from rules_engine.model.rules import RuleId
from rules_engine.model.source import Location

T = TypeVar("T")


class Action(Enum):
    """What a rule did to a request; for a rule in audit mode, what it would have done."""

    SKIP = "skip"
    """It does not apply: match, conditions or an opt-out."""
    KEEP = "keep"
    """It applies and decided to leave the pod as it is."""
    PASS = "pass"  # noqa: S105 - the action, no password
    """A Validation that holds."""
    CHANGE = "change"
    DENY = "deny"
    WARN = "warn"
    """A Validation that does not hold and only warns."""
    RECORD = "record"
    """A Validation that does not hold and is only written to the audit log."""
    IGNORE = "ignore"
    """The rule could not be evaluated; its failurePolicy is Ignore, and all it did was undone."""


_DENY = Action.DENY  # to look a member up on its enum takes a while


@record()
class Attempt:
    """A rung that was looked at for a request, and why it was taken or passed over."""

    resource: str
    taken: bool
    reason: str


@record(kw_only=True)
class ResourceDecision:
    """What a ladder decided for one resource of the pod: `to` is None where it stays."""

    resource: str
    to: str | None
    reason: str
    attempts: tuple[Attempt, ...] = ()


@record(kw_only=True)
class Amount:
    """A resource that a container got: quantities in canonical text, `before` None where it had none.

    In place of a container's name, spec.resources.requests or spec.resources.limits is the pod's own level; no
    container's name has a dot.
    """

    container: str
    resource: str
    before: str | None
    after: str


@record(kw_only=True)
class Step:
    """What one rule did.

    `reason` is a stable word for machines (`namespace`, `opt-out`, `offered`, `evaluation-error` …), `message` is for
    people. `audit`: the rule is in audit mode; nothing came of this step. `code` is the HTTP status of a denial.
    `recorded`: it also goes to the audit log. `cluster_unknown`: it could not be decided for want of cluster knowledge.
    """

    rule: RuleId
    location: Location
    action: Action
    reason: str
    message: str = ""
    audit: bool = False
    code: int = 403
    status_reason: str = "Forbidden"
    warnings: tuple[str, ...] = ()
    resources: tuple[ResourceDecision, ...] = ()
    amounts: tuple[Amount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()
    recorded: bool = False
    cluster_unknown: bool = False

    @property
    def denies(self) -> bool:
        """Whether the request is denied because of this rule."""
        return self.action is _DENY and not self.audit

    @property
    def decides(self) -> bool:
        """Whether this rule had a say in the outcome."""
        return not self.audit and self.action not in (Action.SKIP, Action.PASS, Action.IGNORE)

    def to_json(self) -> dict[str, Json]:
        """For logs and `--output json`; members that say nothing are left out."""
        members: dict[str, Json] = {
            "rule": self.rule,
            "source": str(self.location),
            "action": self.action.value,
            "reason": self.reason,
            "message": self.message,
            "audit": self.audit,
            "code": self.code if self.action is Action.DENY else None,
            "warnings": list(self.warnings),
            "resources": [
                {
                    "resource": decision.resource,
                    "to": decision.to,
                    "reason": decision.reason,
                    "attempts": [
                        {"resource": attempt.resource, "taken": attempt.taken, "reason": attempt.reason}
                        for attempt in decision.attempts
                    ],
                }
                for decision in self.resources
            ],
            "amounts": [
                {
                    "container": amount.container,
                    "resource": amount.resource,
                    "before": amount.before,
                    "after": amount.after,
                }
                for amount in self.amounts
            ],
            "annotations": dict(self.annotations),
            "notes": list(self.notes),
        }
        return {key: value for key, value in members.items() if value not in (None, "", [], {}, False)}


def denied(trace: Sequence[Step]) -> bool:
    """Whether some step denies."""
    for step in trace:  # noqa: SIM110 - a generator would cost more than all the rest
        if step.denies:
            return True
    return False


@record()
class Refusal:
    """A request that no rule could be asked about: a malformed pod. `code` is an HTTP status."""

    code: int
    reason: str
    message: str


@record(kw_only=True)
class Decision:
    """The answer to one request. Read off the trace, so the two cannot disagree.

    `object` is what it was decided for, None where there was none; `edits` are what the patch makes. `remembered`: the
    rules were not asked again, as they had been for a request that they cannot tell from this one. Such decisions share
    what `once` has `derived`.
    """

    trace: tuple[Step, ...] = ()
    patch: tuple[Operation, ...] = ()
    refusal: Refusal | None = None
    object: Json = None
    edits: Edits = field(default_factory=dict)
    remembered: bool = field(default=False, compare=False)
    derived: dict[Any, Any] | None = field(default=None, compare=False, repr=False)

    def once(self, derive: Callable[["Decision"], T]) -> T:
        """What follows from the trace and the patch, and from nothing else: derived once where it is given again."""
        if self.derived is None:
            return derive(self)
        known: T | None = self.derived.get(derive)
        if known is None:
            known = self.derived[derive] = derive(self)
        return known

    @property
    def result(self) -> Json:
        """The object as it stands after the patch."""
        return applied(self.object, self.edits)

    @property
    def allowed(self) -> bool:
        return self.refusal is None and not denied(self.trace)

    @property
    def status(self) -> Refusal | None:
        """Why it is denied: code and reason of the first denial, the messages of all; None when it is allowed.

        What several rules say alike is said once.
        """
        if self.refusal is not None:
            return self.refusal
        denials = [step for step in self.trace if step.denies]
        if not denials:
            return None
        first = denials[0]
        rules: dict[str, list[str]] = {}
        for step in denials:
            rules.setdefault(step.message, []).append(step.rule)
        message = "; ".join(f"{', '.join(names)}: {message}" for message, names in rules.items())
        return Refusal(first.code, first.status_reason, message)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user, each once, in order of the trace; a rule in audit mode warns nobody."""
        return tuple(dict.fromkeys([text for step in self.trace if not step.audit for text in step.warnings]))

    @property
    def audit_annotations(self) -> Mapping[str, str]:
        """What audit modes and Audit actions recorded, by a key that Kubernetes takes."""
        return {
            _audit_key(step.rule): f"{step.action.value}: {step.message}" if step.message else step.action.value
            for step in self.trace
            if step.recorded or (step.audit and step.action is not Action.SKIP and step.action is not Action.PASS)
        }

    def to_json(self) -> dict[str, Json]:
        """For logs and `--output json`."""
        members: dict[str, Json] = {
            "allowed": self.allowed,
            "warnings": list(self.warnings),
            "auditAnnotations": dict(self.audit_annotations),
            "patch": [operation.to_json() for operation in self.patch],
            "trace": [step.to_json() for step in self.trace],
        }
        if self.status is not None:
            status = self.status
            members["status"] = {"code": status.code, "reason": status.reason, "message": status.message}
        return members


MAX_AUDIT_KEY = 63
"""Longest name part of a Kubernetes qualified name (k8s.io/apimachinery/pkg/util/validation)."""


def _audit_key(rule: RuleId) -> str:
    """A qualified name's second part; where the rule's name is too long for it, a digest keeps it apart from others."""
    key = rule.replace("/", ".").lower()
    if len(key) <= MAX_AUDIT_KEY:
        return key
    digest = sha256(key.encode()).hexdigest()[:8]
    return f"{key[: MAX_AUDIT_KEY - len(digest) - 1].rstrip('-_.')}-{digest}"
