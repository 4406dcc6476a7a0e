"""The filter DynamicResources: devices for claims, and for extended resources that a DeviceClass serves.

Source: plugins/dynamicresources (extendeddynamicresources.go, dynamicresources.go), plugins/noderesources/fit.go
(shouldDelegateResourceToDRA). Claims with devices that no pod uses keep them: kube-scheduler may give up such an
allocation if the pod fits nowhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace as replace_members

from rules_engine.cluster.devices.allocation import (
    AllocatedDevice,
    ClaimError,
    DeviceClaim,
    NotModelledError,
    allocate,
    claim_of,
    lacks_devices,
    resolve_claim,
)
from rules_engine.cluster.devices.offers import DeviceOffers
from rules_engine.cluster.devices.requests import create_requests
from rules_engine.cluster.devices.selectors import CostlyError, SelectorError
from rules_engine.cluster.nodes import NodeSet, node_set, numbers_of, union
from rules_engine.cluster.scheduling import scheduling as reasons
from rules_engine.cluster.scheduling.requirements import NODE_NAME, Requirements
from rules_engine.language.cel import Budget, CostExceeded
from rules_engine.model.kubernetes.cluster import Node
from rules_engine.model.kubernetes.devices import (
    MAX_CLAIM_DEVICES,
    Claim,
    ClaimSpec,
    DeviceClass,
    Devices,
    Held,
    PoolKey,
)
from rules_engine.model.kubernetes.placement import NodeExpression, NodeTerm
from rules_engine.model.kubernetes.quantity import Quantity

MAX_KINDS = 1_000
"""Different requests whose nodes are cached; when there are more, all are dropped. One takes a few kilobytes."""

MAX_STEPS = 50_000
"""Steps of one search, some 25 ms. kube-scheduler gives up after 10 s; people's claims need a few thousand."""

MAX_SEARCHES = 40_000_000
"""Steps of all searches for one answer, some 20 seconds. Nodes with equal devices in use are searched once."""

MAX_ANSWERS = 10_000
"""States of nodes whose answers are cached for equal requests, some 200 bytes each."""

MAX_CONSUMERS = 256
"""Pods that a claim is reserved for at most (resource/v1, ResourceClaimReservedForMaxSize)."""

MAX_SCORE = 8
"""Score of the first alternative of a request; that of each further one is less by 1."""

CONDITIONAL = "binding conditions of devices"
CONFIGURED = "the configuration of claimed devices, which their driver reads on the node"
TAINT_RULES = "devicetaintrules, which were not read"

STEPS_EXCEEDED = "it takes too many steps to find out which devices fit together"
"""The failure of a search that kube-scheduler may complete: it tries more steps."""

_EXTENDED = "", ClaimSpec()
"""The claim that the scheduler makes for extended resources: its requests are made for each node."""

_UNLIMITED = Quantity.of(2**64)
"""More than a pod can request."""


class DevicesError(Exception):
    """A failure on one node that ends the whole attempt to schedule a pod: kube-scheduler's reason SchedulerError."""


class _Wanted(Struct, frozen=True, kw_only=True):
    """The claims of a pod: those that have devices, and the specs of the others, with their names if they exist.

    `rejection`: why kube-scheduler rejects the pod before it looks at any node, or "". `unread`: the claims
    and templates that were not read, as messages.
    """

    allocated: tuple[Claim, ...] = ()
    specs: tuple[tuple[str, ClaimSpec], ...] = ()
    rejection: str = ""
    unread: tuple[str, ...] = ()


class _EqualRequests(Struct, eq=False):
    """The nodes for pods of equal requests: nodes with a current answer, by score or by reason, and failures.

    `answers`: the score, or None if too few devices are free, by the devices of a node and their use.
    """

    known: NodeSet = 0
    scores: dict[int, NodeSet] = field(default_factory=dict)
    excluded: dict[str, NodeSet] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    answers: dict[object, int | None] = field(default_factory=dict)

    def forget(self, nodes: NodeSet) -> None:
        self.known &= ~nodes
        for by in (self.scores, self.excluded):
            for key in by:
                by[key] &= ~nodes  # type: ignore[index]
        self.failures = {number: why for number, why in self.failures.items() if not nodes >> number & 1}


class DeviceUse:
    """The devices of a cluster's drivers: the ones in use, by claims and pods, and the nodes with enough free ones."""

    def __init__(
        self, devices: Devices, nodes: Sequence[Node], select: Callable[[tuple[NodeTerm, ...] | None], NodeSet]
    ) -> None:
        """Take what drivers offer, and the function that returns the nodes of a node selector."""
        self._devices = devices
        self._nodes = nodes
        self._select = select
        self._classes = devices.class_by_resource
        self._by_name: Mapping[str, DeviceClass] = {each.name: each for each in devices.classes}
        self.offers = DeviceOffers(devices)
        self._served = {
            name: node_set([number for number, node in enumerate(nodes) if not node.allocatable.get(name)])
            for name in self._classes
        }
        """The nodes whose drivers serve a resource: nodes without a device plugin for it."""
        self._pools = [self.offers.pools.reaching(node) for node in nodes]
        self._reached: dict[PoolKey, NodeSet] = {}
        for number, pools in enumerate(self._pools):
            for pool in pools:
                self._reached[pool.pool_key] = self._reached.get(pool.pool_key, 0) | 1 << number
        self._claims = {**devices.claims}
        self._users = {name: {*each.reserved_for} for name, each in devices.claims.items()}
        """The pods of each claim."""
        self._of_pod: dict[str, tuple[str, ...]] = {}
        """The claims of each pod."""
        for name, users in self._users.items():
            for user in users:
                self._of_pod[user] = (*self._of_pod.get(user, ()), name)
        self._kinds: dict[object, _EqualRequests] = {}
        self.budget = Budget(MAX_SEARCHES)
        self._conditional = [
            (device, each.driver) for each in devices.slices for device in each.devices if device.conditional
        ]

    def without_served(self, node: Node) -> Node:
        """Return a node as NodeResourcesFit sees it: it has any amount of what drivers serve."""
        served = {name: _UNLIMITED for name in self._classes if not node.allocatable.get(name)}
        return replace(node, allocatable={**node.allocatable, **served}) if served else node

    def change_node(self, number: int, node: Node) -> None:
        """Replace the allocatable amounts of a node."""
        bit = 1 << number
        for name, nodes in self._served.items():
            self._served[name] = nodes & ~bit if node.allocatable.get(name) else nodes | bit
        for kind in self._kinds.values():
            kind.forget(bit)

    def neighbours(self, number: int) -> Sequence[int]:
        """Return the other nodes that the pools of a node reach: they have the same devices."""
        nodes = union([self._reached[pool.pool_key] for pool in self._pools[number]])
        return numbers_of(nodes & ~(1 << number))

    def rejection(self, pod: Requirements) -> str:
        """Return why kube-scheduler rejects a pod for its claims before it looks at any node; "" if it does not."""
        return self._find_claims(pod).rejection

    def exclude(self, pod: Requirements, among: NodeSet) -> Mapping[str, NodeSet]:
        """Return the nodes of `among` that have too few devices, by reason. Raises DevicesError."""
        if not (among and self._needs(pod)):
            return {}
        wanted = self._find_claims(pod)
        if wanted.rejection:
            return {wanted.rejection: among}
        served = union([self._served.get(each.resource, 0) for each in pod.devices])
        searched = among if wanted.specs else among & served
        by_reason = self._search_nodes(pod, wanted, searched).excluded if searched else {}
        excluded = {why: nodes & searched for why, nodes in by_reason.items()}
        elsewhere = union([~self._select(claim.terms) for claim in wanted.allocated])
        excluded[reasons.CLAIM_ELSEWHERE] = among & elsewhere & ~union(excluded.values())
        return {why: nodes for why, nodes in excluded.items() if nodes}

    def scores(self, pod: Requirements, among: NodeSet) -> Mapping[int, NodeSet]:
        """Return the nodes of `among`, which `exclude` does not exclude, by the score of what they give a pod."""
        if not self._needs(pod):
            return {}
        kind = self._kinds.get(_key_of(pod, self._find_claims(pod)), _EqualRequests())
        return {score: nodes for score, every in kind.scores.items() if (nodes := every & among)}

    def having(self, pod: Requirements, among: NodeSet) -> NodeSet:
        """Return the nodes of `among` that have enough devices, each searched apart from the others."""
        if not self._needs(pod):
            return among
        nodes = 0
        for number in numbers_of(among):
            try:
                nodes |= 0 if self.exclude(pod, 1 << number) else 1 << number
            except DevicesError:
                continue
        return nodes

    def _needs(self, pod: Requirements) -> bool:
        return bool(pod.claims or (pod.devices and self._classes))

    def _find_claims(self, pod: Requirements) -> _Wanted:
        """Return the claims of a pod."""
        allocated, specs, unread = list[Claim](), list[tuple[str, ClaimSpec]](), list[str]()
        for each in pod.claims:
            named = each.claim or each.template
            kind, name = f"resourceclaim{'' if each.claim else 'template'}", f"{pod.namespace}/{named}"
            claim = self._claims.get(name) if each.claim else None
            spec = claim.spec if claim else None if each.claim else self._devices.templates.get(name)
            why = ""
            if spec is None:
                why = f'{kind} "{named}" not found'
                if self._devices.unread.get(f"{kind}s", pod.namespace) != pod.namespace:
                    unread.append(f"{kind} {name}, which was not read")
                    continue
            elif claim and claim.deleted:
                why = f'{kind} "{named}" is being deleted'
            elif claim and len(self._users[name]) >= MAX_CONSUMERS:
                why = reasons.CLAIM_IN_USE
            else:
                of_classes = [one for request in spec.requests for one in request]
                absent = [one for one in of_classes if one.device_class not in self._by_name]
                if absent and not (claim and claim.allocated):
                    why = f"request {absent[0].name}: device class {absent[0].device_class} does not exist"
            if why:
                return _Wanted(rejection=why)
            if claim and claim.allocated:
                allocated.append(claim)
            elif spec and not (claim and name in dict(specs)):  # several entries may name one claim
                specs.append((name if claim else "", spec))
        return _Wanted(allocated=tuple(allocated), specs=tuple(specs), unread=tuple(unread))

    def _search_nodes(self, pod: Requirements, wanted: _Wanted, searched: NodeSet) -> _EqualRequests:
        """Return the answers for equal requests, with the nodes that are `searched`. Raises DevicesError."""
        key = _key_of(pod, wanted)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = _EqualRequests()
        for number, why in kind.failures.items():
            if searched >> number & 1:
                raise DevicesError(why)
        for number in numbers_of(searched & ~kind.known):
            pools = self._pools[number]
            problems = [pool.problem for pool in pools if pool.problem]
            state = self.offers.shape(pools, self.offers.taken(pools)), *self._classes_on(number, pod), *problems
            if state not in kind.answers:
                if len(kind.answers) >= MAX_ANSWERS:
                    kind.answers.clear()
                try:
                    kind.answers[state] = _score(wanted, self._allocate(pod, wanted, number))
                except DevicesError as error:
                    why = f"{reasons.FAILURE_START}{error}"
                    if self.budget.left:
                        kind.failures[number] = why
                        kind.known |= 1 << number
                    raise DevicesError(why) from None
            kind.known |= 1 << number
            score = kind.answers[state]
            if score is not None:
                kind.scores[score] = kind.scores.get(score, 0) | 1 << number
            else:
                why = reasons.INVALID_POOLS if self._sees_invalid_pool(number) else reasons.NO_DEVICES
                kind.excluded[why] = kind.excluded.get(why, 0) | 1 << number
        return kind

    def _sees_invalid_pool(self, number: int) -> bool:
        pools = self._pools[number]
        reaching = {pool.pool_key for pool in pools}
        return any(pool.invalid for pool in pools) or not reaching.issuperset(self.offers.pools.invalid_elsewhere)

    def _classes_on(self, number: int, pod: Requirements) -> Mapping[str, DeviceClass]:
        """Return the classes that serve resources of a pod on a node."""
        return {
            each.resource: self._classes[each.resource]
            for each in pod.devices
            if self._served.get(each.resource, 0) >> number & 1
        }

    def _allocate(self, pod: Requirements, wanted: _Wanted, number: int) -> Sequence[Sequence[AllocatedDevice]] | None:
        """Return a node's devices for each unallocated claim of a pod and, last, for its extended resources.

        None: too few are free. Empty: a claim is not modelled. Raises DevicesError.
        """
        requests = create_requests(pod.devices, self._classes_on(number, pod))
        count = sum(request.count or 0 for request in requests)
        if count > MAX_CLAIM_DEVICES:
            classes_text = ", ".join(sorted({request.device_class.name for request in requests}))
            limit = f"exceeds the claim limit of {MAX_CLAIM_DEVICES}"
            raise DevicesError(f"number of requested devices {count} of DeviceClass {classes_text} {limit}")
        left = Budget(MAX_STEPS)

        def spend(steps: int) -> None:
            self.budget.spend(steps)
            left.spend(steps)

        try:
            claims: list[DeviceClaim] = [resolve_claim(spec, self._by_name) for _, spec in wanted.specs]
            claims += [claim_of(requests)] if requests else []
            search = (self._pools[number], claims, self.offers.allocated, self.offers.matches)
            several = count > 1 or wanted.specs
            return None if several and lacks_devices(*search, spend) else allocate(*search, spend)
        except NotModelledError:
            return ()
        except (SelectorError, ClaimError) as error:
            raise DevicesError(str(error)) from None
        except (CostlyError, CostExceeded):
            raise DevicesError(STEPS_EXCEEDED) from None

    def bind(self, name: str, number: int, pod: Requirements, released: Sequence[Claim] | None = None) -> None:
        """Bind a pod's claims on its node: the `released` ones, or those reserved for it, or else new devices."""
        if not self._needs(pod):
            return
        claims = [self._claims[each] for each in self._of_pod.get(name, ())] if released is None else released
        if released is None and not claims:
            wanted = self._find_claims(pod)
            try:
                found = self._allocate(pod, wanted, number) or ()
            except DevicesError:
                found = ()
            made = ((each or f"{name}/{index}", spec) for index, (each, spec) in enumerate((*wanted.specs, _EXTENDED)))
            claims = [
                *wanted.allocated,
                *[self._allocated(*each, devices) for each, devices in zip(made, found, strict=False)],
            ]
        self._of_pod[name] = tuple({each.name: None for each in claims})
        for claim in claims:
            self._claims[claim.name] = claim
            self._users.setdefault(claim.name, set()).add(name)
            self.offers.claim(claim.uses)
            self._forget(claim.uses)

    def snapshot(self) -> Callable[[str], Sequence[Claim]]:
        """Return a function that returns the claims of a pod, by its name, as they are now."""
        claims, of_pod = {**self._claims}, {**self._of_pod}
        return lambda name: [claims[each] for each in of_pod.get(name, ())]

    def _allocated(self, name: str, spec: ClaimSpec, devices: Sequence[AllocatedDevice]) -> Claim:
        uses = [each.use(name, extended=spec is _EXTENDED[1]) for each in devices if not each.admin]
        terms = self._reached_by(devices) if name in self._claims else None  # others are for one pod
        return Claim(name=name, spec=spec, allocated=True, uses=uses, terms=terms)

    def _reached_by(self, devices: Sequence[AllocatedDevice]) -> tuple[NodeTerm, ...]:
        """Return the terms of the nodes that devices reach."""
        names = [
            node.name
            for node, pools in zip(self._nodes, self._pools, strict=True)
            if all(any(each.key in map(pool.key, pool.devices) for pool in pools) for each in devices)
        ]
        return (NodeTerm((), (NodeExpression(NODE_NAME, "In", tuple(names)),)),)

    def release(self, name: str) -> Sequence[Claim]:
        """Take a pod from its claims, and their devices from those without another pod; return its claims."""
        released = [self._claims[each] for each in self._of_pod.pop(name, ())]
        for claim in released:
            self._users[claim.name].discard(name)
            if not self._users[claim.name]:
                self.offers.give_back(claim.uses)
                self._forget(claim.uses)
                if claim.name in self._devices.claims:
                    self._claims[claim.name] = replace_members(claim, allocated=False, uses=(), terms=None)
                else:  # it was made for the pod
                    del self._claims[claim.name], self._users[claim.name]
        return released

    def _forget(self, changed: Held) -> None:
        nodes = union([self._reached.get((driver, pool), 0) for (driver, pool, _), _ in changed])
        for kind in self._kinds.values():
            kind.forget(nodes)

    def not_modelled(self, pod: Requirements) -> Iterator[str]:
        """Yield what is not modelled of the claims of a pod, and of devices that match the classes of its requests."""
        if not self._needs(pod):
            return
        wanted = self._find_claims(pod)
        yield from wanted.unread
        specs = [*[claim.spec for claim in wanted.allocated], *[spec for _, spec in wanted.specs]]
        names = [one.device_class for spec in specs for request in spec.requests for one in request]
        classes = [self._classes[each.resource] for each in pod.devices if each.resource in self._classes]
        classes += [self._by_name[each] for each in names if each in self._by_name]
        if classes and self._devices.taint_rules is None:
            yield TAINT_RULES
        # A selector that fails may be true.
        if any(self.offers.verdict(each, driver, device) for each in classes for device, driver in self._conditional):
            yield CONDITIONAL
        if any(spec.configured for spec in specs):
            yield CONFIGURED
        yield from (spec.unsupported for spec in specs if spec.unsupported)
        attributes = {each.attribute for spec in specs for each in spec.constraints}
        yield from (f"the list {each} in a constraint" for each in sorted(attributes & self._lists))

    @cached_property
    def _lists(self) -> frozenset[str]:
        """The attributes, with their domains, that are lists on some device."""
        devices = (device for each in self._devices.slices for device in each.devices)
        by_domain = (item for device in devices for item in device.attributes.items())
        return frozenset(f"{domain}/{name}" for domain, each in by_domain for name in each if each[name] is None)


def _key_of(pod: Requirements, wanted: _Wanted) -> tuple[object, ...]:
    return pod.devices, *[spec for _, spec in wanted.specs]


def _score(wanted: _Wanted, found: Sequence[Sequence[AllocatedDevice]] | None) -> int | None:
    """Return the sum of the scores of the chosen alternatives; None if nothing was found."""
    if found is None:
        return None
    chosen = [{each.request for each in devices} for devices in found]
    return sum(
        MAX_SCORE - index
        for (_, spec), names in zip(wanted.specs, chosen, strict=False)
        for request in spec.requests
        for index, one in enumerate(request)
        if "/" in one.name and one.name in names
    )
