"""The writer of policies and offers: each replica has one, and the one that holds the Lease writes.

It compares what is in the cluster with the active rules, and takes the next step; no step depends on the memory of
another replica. A change of rules takes these steps, so that one rule set decides each pod:

1. The policies of the new rules are created in the other slot. Its validating policies apply to pods with its stamp
   only, and the active ones to all others.
2. After PROPAGATION_SECONDS, the binding of the mutating policy is changed: one write, from which on pods get the other
   stamp. Which policies are bound, the API server reads once for each pod.
3. After SETTLE_SECONDS, no pod with the former stamp is under way. The validating policies apply to all pods again, and
   the former slot is deleted.
4. After PROPAGATION_SECONDS, no policy compares stamps, and only pods that a rule changes are stamped until the next
   change.
"""

import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Any
from uuid import uuid4

from rules_engine.diagnosis.objects.timestamps import parse_timestamp
from rules_engine.model.json.lenient import as_mapping, object_items
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster, Freshness
from rules_engine.model.kubernetes.native_objects import (
    ADMISSION,
    NATIVE_RESOURCES,
    OFFERS,
    STAMP_ANNOTATION,
    annotation_of,
)
from rules_engine.native.offers import build_offers
from rules_engine.native.policy import NativeRules, translate_rules
from rules_engine.webhooks.policies import NativeObjects, Phase, in_phase
from rules_engine.webhooks.settings import Settings
from server.cluster.connection import RENEWAL_CAUSES, ApiError, Cause, Connection
from server.native.lease import Lease
from server.native.objects import Objects, ObjectStore, key_of, slot_of
from server.rules.sources import UnusableError
from server.state import NativeStatus, ServedRules, State
from server.timing import PeriodicTask, rfc3339

SLOTS = ("a", "b")
MUTATING = "MutatingAdmissionPolicy"

STEP_SECONDS = 0.1
"""Interval in which a change of the cluster is noticed."""

OFFERS_SECONDS = 1.0
"""Minimum time between two writes of offers."""

CONFIRMATION_SECONDS = 30.0
"""Time after which unchanged offers are written again, so that their age shows whether a writer runs."""

CHECK_SECONDS = 2.0
"""Interval in which deleted and edited objects are noticed."""

PROPAGATION_SECONDS = 5.0
"""Time for every API server to have active policies: each reads changes once a second, and compiles them."""

SETTLE_SECONDS = 35.0
"""Time until no pod is under way between policies: webhooks, which are called in between, take 30 s at most."""

RETRY_SECONDS = 1.0
REFUSED_SECONDS = 5.0
"""Time after which objects that the API server refused are tried again: a role may have changed, or the API
server may serve a new definition."""

_REFUSALS = frozenset({Cause.INVALID, Cause.REFUSED, Cause.FORBIDDEN})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The exported rules of a rule set, as the objects of each slot.

    `all`: all rules; `staying`: the rules that are not exported, which the webhook evaluates.
    """

    all: ServedRules
    staying: ServedRules
    rules: NativeRules
    objects: Mapping[str, NativeObjects]
    policies: Mapping[str, Sequence[dict[str, Json]]]
    """The definition, policies and bindings of each slot. They are not changed."""

    @property
    def stamp(self) -> str:
        """Stamp of the policies; "" if no rule is exported."""
        return self.objects[SLOTS[0]].stamp if self.rules.exported else ""


def export(served: ServedRules, settings: Settings, *, only: bool = False) -> Exported:
    """Translate rules. With `only`, raises UnusableError for rules that stay."""
    rules, digest = translate_rules(served.rule_set), served.digest
    staying = [f"{each.location}: {each.rule.id} cannot be exported: {each.reason}" for each in rules.staying]
    if only and staying:
        places = tuple(f"{each.location}: {each.rule.id} cannot be exported" for each in rules.staying)
        raise UnusableError("\n".join(staying), digest, places=places)
    objects = {slot: NativeObjects(rules, digest, settings, slot) for slot in SLOTS}
    policies = {slot: tuple(each.policies()) for slot, each in objects.items()}
    remaining = replace(served, rule_set=rules.remaining(served.rule_set))
    return Exported(all=served, staying=remaining, rules=rules, objects=objects, policies=policies)


@dataclass(slots=True)
class _Offers:
    """The last written offers of a slot, and the cluster that they were computed from."""

    spec: dict[str, Json]
    stamp: str
    cluster: Cluster
    at: float
    stored: tuple[Json, Json]
    """The uid and the generation that they got."""


class Writer:
    """Keeps the objects of an installation, and `state.native`, up to date."""

    def __init__(
        self,
        connection: Connection,
        state: State,
        settings: Settings,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._connection = connection
        self._state = state
        self._settings = settings
        self._clock = clock
        identity = f"{socket.gethostname()}_{uuid4().hex[:8]}"
        self._lease = Lease(connection, settings.namespace, f"{settings.name}-native", identity, clock)
        self._objects = ObjectStore(connection)
        self._names = tuple(f"{settings.name}-{slot}" for slot in SLOTS)
        self._switch = "MutatingAdmissionPolicyBinding", settings.name
        served = state.served
        self._served = served
        self._wanted = export(served, settings)
        self._known = {self._wanted.stamp: self._wanted}
        """Exported rules by stamp: the present, previous, active and formerly active ones."""
        self._writing = False
        self._owners: list[Json] = []
        self._next_check = 0.0
        self._switched = 0.0
        """Time of the last switch, or since when this replica writes."""
        self._prepared: float | None = None
        """Time since when the slot of the new rules is complete."""
        self._alone: float | None = None
        """Time since when no other slot exists."""
        self._refused: tuple[str, float, str] | None = None
        """Stamp of refused objects, until when they are not tried again, and the reason."""
        self._offers: dict[str, _Offers] = {}
        self._active = "", ""
        """Active slot and stamp at the last check."""
        self._checked = -inf
        """Time of the last check."""
        self._former = "", 0.0
        """The formerly active stamp, and when it was replaced."""
        self._written_at: datetime | None = None
        """Time at which the active offers were written, by the clock of their writer."""
        self._problem: str | None = None
        self._publish()
        self._task = PeriodicTask(self.step, name="native", doing="policies were written", retry_seconds=CHECK_SECONDS)

    def start(self) -> None:
        self._task.start()

    def stop(self) -> None:
        """Stop, and let another replica take over at once."""
        self._task.stop()
        try:
            self._lease.release()
        except ApiError as error:
            _log.info("the Lease was not released: %s", error)

    def step(self) -> float:
        """Take the steps that are due; return the seconds to wait before the next call."""
        problem, wait = None, STEP_SECONDS
        try:
            self._step(self._clock())
            if self._refused is not None:
                problem = self._refused[2] or None
        except ApiError as error:
            problem, wait = str(error), max(RETRY_SECONDS, error.retry_after_seconds or 0.0)
            self._writing = self._writing and self._lease.held
            self._next_check = 0.0
            if error.cause in RENEWAL_CAUSES:
                self._connection.renew()
        except Exception:
            self._problem = "unexpected error: see the server's log"
            self._publish()
            raise
        if problem != self._problem:
            if problem is None:
                _log.info("policies and offers can be written again")
            else:
                _log.warning("policies or offers cannot be written: %s", problem)
        self._problem = problem
        self._publish()
        return wait

    def _step(self, now: float) -> None:
        if self._state.cluster.freshness is Freshness.NEVER:
            return  # the last offers stand, and another replica may know the cluster
        self._adopt_rules()
        due = now >= self._next_check
        if due and (self._writing or not self._owners):
            self._read_owner()
        writing = self._lease.hold(self._owners)
        if writing and not self._writing:
            _log.info("this replica writes policies and offers")
            self._switched, self._prepared, self._alone, due = now, None, None, True
            self._offers.clear()
        self._writing = writing
        if due:
            self._next_check = now + CHECK_SECONDS
            self._check(now)
        if writing:
            slot, stamp = self._active
            self._write_offers(slot, stamp, now)

    def _adopt_rules(self) -> None:
        served = self._state.served
        if served is not self._served:
            self._served = served
            before, self._wanted = self._wanted, export(served, self._settings)
            stamps = {self._active[1], self._former[0], before.stamp}
            needed = {stamp: each for stamp, each in self._known.items() if stamp in stamps}
            self._known = {**needed, self._wanted.stamp: self._wanted}
            self._next_check = 0.0

    def _read_owner(self) -> None:
        """Read the ClusterRole of the chart, with which Kubernetes deletes all objects."""
        try:
            role = self._objects.get("ClusterRole", f"{self._settings.name}-native")
        except ApiError as error:
            if error.cause is not Cause.FORBIDDEN:
                raise
            role = None
        owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        self._owners = [] if role is None else [{**owner, **{name: role["metadata"][name] for name in ("name", "uid")}}]

    def _check(self, now: float) -> None:
        """Read which slot is active, and take the next step towards the rules."""
        labelled = self._objects.list(self._names, NATIVE_RESOURCES if self._writing else (self._switch[0], OFFERS))
        # Anybody may give a label to an object of another name.
        stored = {key: each for key, each in labelled.items() if f"{key[1]}-".startswith(f"{self._settings.name}-")}
        self._checked = self._clock()
        switch = stored.get(self._switch, {})
        slot, stamp = slot_of(switch), annotation_of(switch, STAMP_ANNOTATION)
        if stamp != self._active[1]:
            self._former = self._active[1], now
        self._active = slot, stamp
        self._compare_offers(stored)
        if not self._writing:
            return
        if not self._wanted.stamp:
            self._objects.delete(*stored)
        elif stamp == self._wanted.stamp:
            self._refused = None
            self._keep(self._wanted, slot, stored, now)
        elif not self._is_refused(stored, now):
            self._change(slot, stored, now)
        elif stamp in self._known:
            self._keep(self._known[stamp], slot, stored, now)

    def _keep(self, exported: Exported, slot: str, stored: Objects, now: float) -> None:
        """Restore the active slot, and delete all else when the pods of the other slot are through."""
        since = now - self._switched
        needed = {key_of(each) for each in self._documents(exported, slot, Phase.ALONE)}
        needed.add((OFFERS, f"{self._settings.name}-{slot}"))
        unneeded = stored.keys() - needed
        phase = Phase.INCOMING if unneeded and since < SETTLE_SECONDS else Phase.ALONE
        self._alone = None if unneeded else now if self._alone is None else self._alone
        # Until the mutating policy is active everywhere, pods are not as they should be.
        checks = since >= PROPAGATION_SECONDS or any(kind.startswith("Validating") for kind, _ in stored)
        if self._write_slot(exported, slot, phase, stored, checks=checks) and phase is Phase.ALONE:
            self._objects.delete(*unneeded)

    def _change(self, slot: str, stored: Objects, now: float) -> None:
        """Prepare the other slot, and switch to it. Without an active slot, there is nothing to mix."""
        target = next(each for each in SLOTS if each != slot)
        held = stored.get((MUTATING, f"{self._settings.name}-{target}"), {})
        former = annotation_of(held, STAMP_ANNOTATION) not in ("", self._wanted.stamp)
        if slot and former and now - self._switched < SETTLE_SECONDS:
            return  # pods of an earlier change are under way
        mutating = next(each for each in self._wanted.policies[target] if each["kind"] == MUTATING)
        for key, document in stored.items() if slot else ():
            if key[0] in (MUTATING, "ValidatingAdmissionPolicy") and slot_of(document) == slot:
                outgoing = in_phase(_as_written(document), Phase.OUTGOING, self._wanted.stamp, mutating)
                self._put(outgoing, document)
        phase = Phase.INCOMING if slot else Phase.ALONE
        complete = self._write_slot(self._wanted, target, phase, stored, switch=not slot, checks=bool(slot))
        self._prepared = (now if self._prepared is None else self._prepared) if complete else None
        if not slot:
            self._switched, self._next_check = now, 0.0
        elif self._prepared is not None and now - self._prepared >= PROPAGATION_SECONDS:
            for document in self._documents(self._wanted, target, Phase.INCOMING):
                if key_of(document) == self._switch:
                    self._put(document, stored[self._switch])
            self._switched, self._prepared, self._next_check = now, None, 0.0
            _log.info("policies %s are active", self._wanted.stamp)

    def _is_refused(self, stored: Objects, now: float) -> bool:
        """Return True if the API server refuses an object of the rules; each is sent as a dry run before the first."""
        stamp = self._wanted.stamp
        if self._refused is not None and self._refused[0] == stamp and now < self._refused[1]:
            return bool(self._refused[2])
        reason = ""
        for document in map(self._owned, self._wanted.policies[SLOTS[self._active[0] == SLOTS[0]]]):
            if str(document["kind"]).endswith("Binding"):
                continue  # refused as long as its policy does not exist
            if document["kind"] == "CustomResourceDefinition":
                # Policies with a parameter are refused as long as its kind does not exist.
                if self._objects.get(*key_of(document)) is None:
                    self._put(document, None)
                continue
            try:
                self._put(document, stored.get(key_of(document)), dry_run=True)
            except ApiError as error:
                if error.cause not in _REFUSALS:
                    raise
                reason = f"the API server refuses {document['kind']} {key_of(document)[1]}: {error}"
                break
        self._refused = stamp, now + REFUSED_SECONDS, reason
        return bool(reason)

    def _write_slot(
        self, exported: Exported, slot: str, phase: Phase, stored: Objects, *, switch: bool = True, checks: bool = True
    ) -> bool:
        """Write the objects of a slot that differ. Return True if none did."""
        unchanged = True
        others = next(f"{self._settings.name}-{each}" for each in SLOTS if each != slot)
        for document in self._documents(exported, slot, phase, stored.get((MUTATING, others))):
            kind, name = key = key_of(document)
            if (key == self._switch and not switch) or (kind.startswith("Validating") and not checks):
                continue
            present = self._objects.get(kind, name) if kind == "CustomResourceDefinition" else stored.get(key)
            if kind == "CustomResourceDefinition" and present:
                document = _shared(document, present)
            unchanged &= not self._put(document, present)
            if kind == "CustomResourceDefinition" and not self._write_offers(slot, exported.stamp, self._clock()):
                return False  # the API server does not serve them yet
        return unchanged

    def _documents(
        self, exported: Exported, slot: str, phase: Phase, others: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Json]]:
        compared = self._alone is None or self._clock() - self._alone < PROPAGATION_SECONDS
        for document in exported.policies[slot]:
            stamping = Phase.INCOMING if compared and document["kind"] == MUTATING else phase
            yield in_phase(self._owned(document), stamping, exported.stamp, others)

    def _owned(self, document: dict[str, Json]) -> dict[str, Json]:
        if not self._owners:
            return document
        return {**document, "metadata": {**as_mapping(document["metadata"]), "ownerReferences": self._owners}}

    def _put(self, document: dict[str, Json], stored: dict[str, Any] | None, *, dry_run: bool = False) -> bool:
        """Write an object as long as this replica holds the Lease."""
        if not self._lease.hold(self._owners):
            raise ApiError(Cause.CONFLICT, "another replica has the Lease")
        return self._objects.put(document, stored, dry_run=dry_run)

    def _write_offers(self, slot: str, stamp: str, now: float) -> bool:
        """Write the offers of a slot if they changed, or to confirm them. Return False if they are not served."""
        exported, last, cluster = self._known.get(stamp), self._offers.get(slot), self._state.cluster
        if exported is None or slot not in SLOTS or not exported.objects[slot].reads_offers:
            return True
        age = inf if last is None else now - last.at
        is_same = last is not None and cluster is last.cluster and stamp == last.stamp
        if age < (CONFIRMATION_SECONDS if is_same else OFFERS_SECONDS):
            return True
        spec = build_offers(exported.rules, cluster)
        if last is not None and (spec, stamp) == (last.spec, last.stamp) and age < CONFIRMATION_SECONDS:
            last.cluster = cluster
            return True
        document = self._owned(exported.objects[slot].offers(spec))
        written_at = datetime.now(UTC)
        status: Json = {"writer": self._lease.identity, "writtenAt": rfc3339(written_at)}
        answer = self._objects.apply({**document, "status": status})
        if answer is None:
            return False
        self._offers[slot] = _Offers(spec, stamp, cluster, now, _version(answer))
        self._written_at = written_at
        return True

    def _compare_offers(self, stored: Objects) -> None:
        """Forget offers that somebody else changed, so that they are written again."""
        for slot in SLOTS:
            present = stored.get((OFFERS, f"{self._settings.name}-{slot}"), {})
            if slot in self._offers and self._offers[slot].stored != _version(present):
                del self._offers[slot]
            if slot == self._active[0]:
                self._written_at = parse_timestamp(as_mapping(present.get("status")), "writtenAt")

    def _rules_by_stamp(self) -> Mapping[str, tuple[ServedRules, ServedRules]]:
        active = self._known.get(self._active[1])
        if active is None or not self._active[1] or self._clock() - self._checked > SETTLE_SECONDS:
            return {}  # all rules: what is active is unknown
        former, since = self._former
        settled = self._clock() - since >= SETTLE_SECONDS
        others = {self._wanted.stamp, "" if settled else former} - {self._active[1]}
        # All rules: a user's stamp has no effect while its policies are not active.
        changing = {stamp: (each.all, each.all) for stamp, each in self._known.items() if stamp in others}
        # The first validating policies are created after the mutating one, and compiled after both.
        return {**changing, "": (active.all, active.staying if settled else active.all)}

    def _publish(self) -> None:
        self._state.policies = self._rules_by_stamp()
        self._state.native = NativeStatus(
            writer=self._lease.holder,
            writes=self._writing,
            active=self._active[1],
            wanted=self._wanted.stamp,
            offers_at=self._written_at,
            exported=len(self._wanted.rules.exported),
            staying=len(self._wanted.rules.staying),
            problem=self._problem,
        )


def _version(document: Mapping[str, Any]) -> tuple[Json, Json]:
    metadata = as_mapping(document.get("metadata"))
    return metadata.get("uid"), metadata.get("generation")


def _shared(document: dict[str, Json], stored: Mapping[str, Any]) -> dict[str, Json]:
    """Return the definition with the metadata of the stored one, and its owner: it belongs to all installations."""
    metadata, own = _written_metadata(stored), as_mapping(document["metadata"])
    owners = [*object_items(metadata.get("ownerReferences")), *object_items(own.get("ownerReferences"))]
    by_uid: dict[Json, Json] = {each["uid"]: {**each} for each in owners}
    return {**document, "metadata": {**metadata, **({"ownerReferences": [*by_uid.values()]} if by_uid else {})}}


def _as_written(document: Mapping[str, Any]) -> dict[str, Json]:
    """Return an object of the cluster without what the API server added."""
    written = {"kind": document["kind"], "metadata": _written_metadata(document), "spec": document["spec"]}
    return {"apiVersion": f"{ADMISSION}/v1", **written}


def _written_metadata(document: Mapping[str, Any]) -> dict[str, Json]:
    names = ("name", "labels", "annotations", "ownerReferences")
    return {name: value for name, value in document["metadata"].items() if name in names}
