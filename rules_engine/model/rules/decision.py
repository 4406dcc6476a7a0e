"""The decision for one request, with its trace."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rules_engine.model.json.edits import Edits, apply_edits
from rules_engine.model.json.patch import Json, PatchOperation
from rules_engine.model.problems.source import Field, Location
from rules_engine.model.rules.rule import RuleId


class Action(Enum):
    """The action of a rule on a request; for a rule in audit mode, the action that it would take.

    skip: it does not apply; keep: it changes nothing; pass: a Validation that holds; warn, record: one that does not,
    and only warns or is recorded; ignore: it failed, and its failurePolicy is Ignore.
    """

    SKIP = "skip"
    KEEP = "keep"
    PASS = "pass"  # noqa: S105 - the action, no password
    CHANGE = "change"
    DENY = "deny"
    WARN = "warn"
    RECORD = "record"
    IGNORE = "ignore"


EVALUATION_ERROR = "evaluation-error"
"""Reason of a rule that could not be evaluated."""

UNMET_CONDITION = "condition"
"""Reason of a rule that does not apply because a match condition is false."""


class Attempt(Struct, frozen=True):
    """A rung that was tried for a request, with the reason for taking or rejecting it.

    `field`: the expression that rejected it, if one did.
    """

    resource: str
    taken: bool
    reason: str
    field: Field | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the attempt for logs and `--output json`."""
        field_members = self.field.to_json() if self.field is not None else {}
        return {"resource": self.resource, "taken": self.taken, "reason": self.reason, **field_members}


def resource_of(title: str) -> str:
    """Return the resource of a rung's title, such as nvidia.com/gpu@A100, on the pool A100."""
    return title.partition("@")[0]


class ResourceDecision(Struct, frozen=True, kw_only=True):
    """A ladder's decision for a resource of the pod, by titles of rungs before and after: `to` is None if it stays."""

    resource: str
    to: str | None
    reason: str
    attempts: tuple[Attempt, ...] = ()

    @property
    def given(self) -> str:
        """The resource that the pod gets or keeps."""
        return self.to or self.resource


class ContainerRequest(Struct, frozen=True):
    """A container's request of a GPU resource, before the rule changed it: a whole number of devices."""

    container: str
    resource: str
    count: int

    def to_json(self) -> dict[str, Json]:
        """Return the request for logs and `--output json`."""
        return {"container": self.container, "resource": self.resource, "count": self.count}


class Amount(Struct, frozen=True, kw_only=True):
    """An injected amount of a resource in a container: canonical quantities; `before` is None if it had none.

    `container` may also be spec.resources.requests or spec.resources.limits, the pod level: names of containers have no
    dots. `field`: the default coefficient, if the entry of a namespace inherits it.
    """

    container: str
    resource: str
    before: str | None
    after: str
    field: Field | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the amount for logs and `--output json`."""
        field_members = self.field.to_json() if self.field is not None else {}
        return {
            "container": self.container,
            "resource": self.resource,
            "before": self.before,
            "after": self.after,
            **field_members,
        }


class AddedMember(Struct, frozen=True, kw_only=True):
    """A member that a rule writes, such as `env.NCCL_DEBUG` of a container; `container` is "" for one of the pod.

    `replaced`: the pod had another value, which is not recorded: it may be a secret.
    """

    container: str
    member: str
    value: Json
    replaced: bool

    def to_json(self) -> dict[str, Json]:
        """Return the member for logs and `--output json`."""
        container: dict[str, Json] = {"container": self.container} if self.container else {}
        replaced: dict[str, Json] = {"replaced": True} if self.replaced else {}
        return {**container, "member": self.member, "value": self.value, **replaced}


class Step(Struct, frozen=True, kw_only=True):
    """The evaluation of one rule.

    `reason` is a stable word for machines (`namespace`, `opt-out`, `offered`, `evaluation-error` …), `message` is for
    people. `audit`: the rule is in audit mode; the step has no effect. `code` is the HTTP status of a denial.
    `recorded`: it also goes to the audit log. `cluster_unknown`: nothing was decided, since the cluster is unknown.
    `static`: the same step with static messages, if message expressions made its messages, which may quote the pod.
    `requests`: the containers' requests of the resources that the rule decides on.
    `fields`: the entries or expressions that decided; none if the rule as a whole decided, which is at `location`.
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
    requests: tuple[ContainerRequest, ...] = ()
    resources: tuple[ResourceDecision, ...] = ()
    amounts: tuple[Amount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    members: tuple[AddedMember, ...] = ()
    notes: tuple[str, ...] = ()
    recorded: bool = False
    cluster_unknown: bool = False
    static: "Step | None" = None
    fields: tuple[Field, ...] = ()

    @property
    def denies(self) -> bool:
        """True if this rule denies the request."""
        return self.action is Action.DENY and not self.audit

    @property
    def applies(self) -> bool:
        """True if the rule applied to the pod and could be evaluated."""
        return self.action is not Action.SKIP and self.reason != EVALUATION_ERROR

    @property
    def decides(self) -> bool:
        """True if this rule contributed to the decision."""
        return not self.audit and self.action not in (Action.SKIP, Action.PASS, Action.IGNORE)

    @property
    def would_decide(self) -> bool:
        """True if this rule is in audit mode and would have contributed to the decision."""
        return self.audit and self.action not in (Action.SKIP, Action.PASS, Action.IGNORE)

    def to_json(self) -> dict[str, Json]:
        """Return the step for logs and `--output json`; empty members are left out."""
        sources = [field.to_json() for field in self.fields] or [{"source": str(self.location)}]
        members: dict[str, Json] = {
            "rule": self.rule,
            **sources[0],
            "furtherFields": [{**further} for further in sources[1:]],
            "action": self.action.value,
            "reason": self.reason,
            "message": self.message,
            "audit": self.audit,
            "code": self.code if self.action is Action.DENY else None,
            "warnings": list(self.warnings),
            "requests": [request.to_json() for request in self.requests],
            "resources": [
                {
                    "resource": decision.resource,
                    "to": decision.to,
                    "reason": decision.reason,
                    "attempts": [attempt.to_json() for attempt in decision.attempts],
                }
                for decision in self.resources
            ],
            "amounts": [amount.to_json() for amount in self.amounts],
            "annotations": dict(self.annotations),
            "members": [member.to_json() for member in self.members],
            "notes": list(self.notes),
        }
        return {key: value for key, value in members.items() if value not in (None, "", [], {}, False)}


def has_denial(trace: Sequence[Step]) -> bool:
    """Return True if any step denies."""
    return any(step.denies for step in trace)


def denial_message(denials: Iterable[tuple[str, str]]) -> str:
    """Join the messages of rules that deny, each with its rule; a message that several rules share appears once."""
    rules: dict[str, list[str]] = {}
    for rule, message in denials:
        rules.setdefault(message, []).append(rule)
    return "; ".join(f"{', '.join(names)}: {message}" for message, names in rules.items())


class HttpRefusal(Struct, frozen=True):
    """The refusal of a request on which no rule can be evaluated: a malformed pod. `code` is an HTTP status."""

    code: int
    reason: str
    message: str


class Decision(Struct, frozen=True, kw_only=True):
    """The answer to one request. Read off the trace, so the two cannot disagree.

    `object` is the request's object, if any; the patch makes the `edits`. `context`: returns the last context of the
    evaluation, with the changed pod and the nodes that it may run on; None if there was none. `audit`: nothing of it
    takes effect, not even a refusal.
    """

    trace: tuple[Step, ...] = ()
    patch: tuple[PatchOperation, ...] = ()
    refusal: HttpRefusal | None = None
    object: Json = None
    edits: Edits = field(default_factory=dict)
    context: Callable[[], Any] | None = None
    audit: bool = False

    def __eq__(self, other: Any) -> bool:
        """Compare all members except `context`."""
        return isinstance(other, Decision) and self._answer == other._answer

    @property
    def _answer(self) -> tuple[Any, ...]:
        return self.trace, self.patch, self.refusal, self.object, self.edits, self.audit

    @property
    def audited(self) -> "Decision":
        """The decision of a server in mode Audit: what it would be, without an effect."""
        statics = (step.static and replace(step.static, audit=True) for step in self.trace)
        trace = tuple(
            replace(step, audit=True, static=static) for step, static in zip(self.trace, statics, strict=True)
        )
        return Decision(trace=trace, refusal=self.refusal, object=self.object, audit=True)

    @property
    def outcome(self) -> str:
        """One of ALLOWED, CHANGED, DENIED and INVALID."""
        if self.refusal is not None and not self.audit:
            return INVALID
        if not self.allowed:
            return DENIED
        return CHANGED if self.patch else ALLOWED

    @property
    def result(self) -> Json:
        """The object after the patch."""
        return apply_edits(self.object, self.edits)

    @property
    def allowed(self) -> bool:
        return self.audit or (self.refusal is None and not has_denial(self.trace))

    @property
    def status(self) -> HttpRefusal | None:
        """Code and reason of the first denial, with the messages of all denials; None if the request is allowed."""
        if self.refusal is not None:
            return None if self.audit else self.refusal
        denials = [step for step in self.trace if step.denies]
        if not denials:
            return None
        first = denials[0]
        message = denial_message((step.rule, step.message) for step in denials)
        return HttpRefusal(first.code, first.status_reason, message)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Distinct warnings for the user, in order of the trace; rules in audit mode have none."""
        return tuple(dict.fromkeys([text for step in self.trace if not step.audit for text in step.warnings]))

    @property
    def audit_annotations(self) -> Mapping[str, str]:
        """Records of rules in audit mode and of Audit actions, by keys that Kubernetes accepts."""
        return {
            _audit_key(step.rule): f"{step.action.value}: {step.message}" if step.message else step.action.value
            for step in self.trace
            if step.recorded or (step.audit and step.action is not Action.SKIP and step.action is not Action.PASS)
        }

    def to_json(self) -> dict[str, Json]:
        """Return the decision for logs and `--output json`."""
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


ALLOWED, CHANGED, DENIED, INVALID = "Allowed", "Changed", "Denied", "Invalid"
"""Outcomes of a decision; Invalid: the pod cannot be parsed."""

MAX_AUDIT_KEY = 63
"""Longest name part of a Kubernetes qualified name (k8s.io/apimachinery/pkg/util/validation)."""


def _audit_key(rule: RuleId) -> str:
    """Return the name part of a qualified name; a digest keeps names distinct that are too long."""
    key = rule.replace("/", ".").lower()
    if len(key) <= MAX_AUDIT_KEY:
        return key
    digest = sha256(key.encode()).hexdigest()[:8]
    return f"{key[: MAX_AUDIT_KEY - len(digest) - 1].rstrip('-_.')}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePart:
    """A part of a rule that test cases should cover, with an event: a rung that is requested, for instance.

    `reached(step, namespace)`: True if a step of the rule, for a pod in a namespace, shows the event.
    """

    name: str
    event: str
    location: Location
    reached: Callable[[Step, str], bool]
