"""Decisions as the decision log and the JSON of commands have them (`Decision.to_json`), and requests of the log."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rules_engine.model.json.output import SparseOutput
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.kept_fields import RESERVATION, Kept, merge_fields
from rules_engine.model.kubernetes.removed_values import POD, MemberPath, field_paths, without_fields
from rules_engine.model.rules.decision import Action, Decision

FieldPath = Annotated[str, Meta(description="Path below spec, such as rungs[2]. Absent: no single field decided.")]


class LoggedField(SparseOutput, frozen=True, kw_only=True):
    """A field of a rule."""

    source: Annotated[str, Meta(description="FILE:LINE:COLUMN.")]
    field: FieldPath


class LoggedRequest(SparseOutput, frozen=True, kw_only=True):
    """A container's request of a GPU resource, before the rule changed it."""

    container: str
    resource: str
    count: Annotated[int, Meta(description="Devices.")]


class LoggedAttempt(SparseOutput, frozen=True, kw_only=True):
    """A rung that was tried."""

    resource: Annotated[str, Meta(description="Of the rung, with @POOL if it has a pool.")]
    taken: Annotated[bool, Meta(description="The pod got the resource of the rung.")]
    reason: Annotated[str, Meta(description="Why it was taken or rejected.")]
    source: Annotated[str, Meta(description="FILE:LINE:COLUMN of the expression that rejected it.")] = ""
    field: Annotated[str, Meta(description="Path below spec of that expression.")] = ""


class LoggedResource(SparseOutput, frozen=True, kw_only=True):
    """A ladder's decision for one resource of the pod."""

    resource: str
    to: Annotated[str | None, Meta(description="The resource that replaces it. Null: it stays.")]
    reason: Annotated[str, Meta(description="Why it moves or stays.")]
    attempts: tuple[LoggedAttempt, ...]


class LoggedAmount(SparseOutput, frozen=True, kw_only=True):
    """An injected amount of a resource."""

    container: Annotated[
        str, Meta(description="Or spec.resources.requests, spec.resources.limits: the amount of the whole pod.")
    ]
    resource: str
    before: Annotated[str | None, Meta(description="A quantity. Null: none.")]
    after: Annotated[str, Meta(description="A quantity.")]
    source: Annotated[str, Meta(description="FILE:LINE:COLUMN of the inherited default.")] = ""
    field: Annotated[str, Meta(description="Path below spec of that default.")] = ""


class LoggedMember(SparseOutput, frozen=True, kw_only=True):
    """A member that PodDefaults wrote."""

    container: Annotated[str, Meta(description="Absent: the member is of the pod.")] = ""
    member: Annotated[str, Meta(description="Field and name, such as env.NCCL_DEBUG.")]
    value: Annotated[Any, Meta(description="Of the field, or the whole item of a list.")]
    replaced: Annotated[bool, Meta(description="The pod had another value.")] = False

    @property
    def text(self) -> str:
        """The value, without the name that `member` has; "" if that says all."""
        field, _, name = self.member.partition(".")
        if field == "tolerations":
            return ""
        if not isinstance(self.value, dict):
            return str(self.value)
        rest = {key: value for key, value in self.value.items() if key not in ("name", "mountPath") or value != name}
        if [*rest] == ["value"]:
            return str(rest["value"])
        return json.dumps(rest, ensure_ascii=False) if rest else ""


class LoggedStep(SparseOutput, frozen=True, kw_only=True):
    """The evaluation of one rule. Empty members are absent."""

    rule: Annotated[str, Meta(description="Kind and name.")]
    source: Annotated[str, Meta(description="FILE:LINE:COLUMN of what decided, else of the rule.")] = ""
    field: FieldPath = ""
    further_fields: Annotated[tuple[LoggedField, ...], Meta(description="Further expressions that decided.")] = ()
    action: Annotated[Action, Meta(description="In audit mode, what the rule would do.")]
    reason: Annotated[str, Meta(description="A stable word for programs.")]
    message: Annotated[str, Meta(description="The reason for people.")] = ""
    audit: Annotated[bool, Meta(description="The rule is in audit mode: the step has no effect.")] = False
    code: Annotated[int | None, Meta(description="HTTP status of a denial.")] = None
    warnings: tuple[str, ...] = ()
    requests: Annotated[tuple[LoggedRequest, ...], Meta(description="Of the resources that the rule decides.")] = ()
    resources: Annotated[tuple[LoggedResource, ...], Meta(description="A ladder's decisions.")] = ()
    amounts: Annotated[tuple[LoggedAmount, ...], Meta(description="What an injection wrote.")] = ()
    annotations: Annotated[Mapping[str, str], Meta(description="Annotations that the rule wrote.")] = {}
    members: Annotated[tuple[LoggedMember, ...], Meta(description="What PodDefaults wrote.")] = ()
    notes: Annotated[tuple[str, ...], Meta(description="Facts that did not change the decision.")] = ()

    @property
    def denies(self) -> bool:
        """True if this rule denies the request."""
        return self.action is Action.DENY and not self.audit


class LoggedStatus(SparseOutput, frozen=True, kw_only=True):
    """The status of a denied pod."""

    code: Annotated[int, Meta(description="HTTP status.")]
    reason: Annotated[str, Meta(description="Of a Kubernetes Status, such as Forbidden.")]
    message: Annotated[str, Meta(description="Absent in the decision log, since it may quote the pod.")] = ""


class LoggedOperation(SparseOutput, frozen=True, kw_only=True):
    """An operation of a JSON Patch (RFC 6902)."""

    op: Literal["add", "remove", "replace"]
    path: Annotated[str, Meta(description="A JSON Pointer (RFC 6901).")]
    value: Annotated[Any | UnsetType, Meta(description="Absent: the operation is remove.")] = UNSET


class LoggedDecision(SparseOutput, frozen=True, kw_only=True):
    """The decision of one endpoint."""

    allowed: bool
    warnings: Annotated[tuple[str, ...], Meta(description="For the user who creates the pod.")]
    audit_annotations: Annotated[Mapping[str, str], Meta(description="For the audit log of the API server.")]
    patch: tuple[LoggedOperation, ...]
    trace: Annotated[tuple[LoggedStep, ...], Meta(description="The step of each rule, in order of evaluation.")]
    status: Annotated[LoggedStatus | None, Meta(description="Absent: the pod is allowed.")] = None

    @property
    def refused(self) -> str:
        """The reason why no rule was evaluated; "" if the pod was readable."""
        return self.status.message if self.status is not None and not self.trace else ""

    @classmethod
    def of(cls, decision: Decision) -> "LoggedDecision":
        return msgspec.convert(decision.to_json(), cls)


_POD = merge_fields(POD, {"metadata": {"annotations": {RESERVATION: None}}})

_LEFT_OUT: Mapping[str, Kept] = {"object": _POD, "oldObject": _POD}

LEFT_OUT: Mapping[str, MemberPath] = field_paths(_LEFT_OUT)
"""The members that are left out, by their names in a decision log."""


def reduce_request(raw: dict[str, Json]) -> tuple[Json, list[str]]:
    """Return a request without the members that logs omit, and the names of the omitted members."""
    left_out = dict[str, None]()
    return without_fields(raw, _LEFT_OUT, left_out), [*left_out]
