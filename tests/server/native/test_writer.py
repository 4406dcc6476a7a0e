"""The writer of policies and offers, against an API server in memory and a clock of the test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain, product
from time import monotonic, sleep
from typing import Any

import pytest

from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.nodes import Offered
from rules_engine.kinds.injection.value import GPU_TYPE_ANNOTATION
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER, Cluster, Freshness
from rules_engine.model.kubernetes.native_objects import STAMP_ANNOTATION
from rules_engine.webhooks.policies import PHASE_CONDITION, NativeObjects
from rules_engine.webhooks.settings import Settings
from server.cluster.connection import ApiError, Cause
from server.cluster.source import FixedCluster
from server.native import lease, writer
from server.native.writer import Writer, export
from server.rules.sources import UnusableError
from server.state import ServedRules
from tests.support.evaluation import (
    check,
    cluster,
    compiled,
    injection,
    ladder,
    limited,
    rung,
    validation,
)
from tests.support.native import admitted
from tests.support.native_api import ADMISSION, DEFINITION, OFFERS, Clock, NativeApi
from tests.support.server import application, call, encoded, review
from tests.support.states import state_of

SETTINGS = Settings(name="x", namespace="ns")
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
SWITCH = f"{ADMISSION}/mutatingadmissionpolicybindings/x"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/x-native"
TWO = cluster({GPU: 2})
CHECKS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
REFUSED = validation("'w' == 'w'", name="w")


def rules(cores: int = 1, *more: Any) -> RuleSet:
    return compiled(
        ladder(rung(MIG), rung(GPU), name="mig"),
        injection({"cpu": str(cores)}),
        validation("object != null", name="v"),
        *more,
    )


class Replica:
    """A replica of the server, of which only the writer runs, step by step."""

    def __init__(
        self,
        api: NativeApi,
        clock: Clock,
        rule_set: RuleSet | None = None,
        on: Cluster = TWO,
        settings: Settings = SETTINGS,
    ) -> None:
        served = ServedRules(rule_set=rules() if rule_set is None else rule_set, digest="first")
        self.state = state_of(served, on)
        self.clock = clock
        self.writer = Writer(api, self.state, settings, clock=clock)  # type: ignore[arg-type]

    def serve(self, rule_set: RuleSet, digest: str) -> None:
        self.state.served = ServedRules(rule_set=rule_set, digest=digest)

    def see(self, on: Cluster) -> None:
        self.state.source = FixedCluster(on)

    def run(self, seconds: float = 0.0) -> None:
        """Step at least once, and for a while."""
        end = self.clock.now + seconds
        while True:
            wait = self.writer.step()
            if self.clock.now + wait > end:
                return
            self.clock.now += wait

    @property
    def status(self) -> Any:
        return self.state.native


@pytest.fixture
def api() -> NativeApi:
    return NativeApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replica(api: NativeApi, clock: Clock) -> Replica:
    """A replica whose policies have been active for long."""
    made = Replica(api, clock)
    made.run(65)
    api.writes.clear()
    return made


def active_stamp(api: NativeApi) -> str:
    stamp: str = api.objects[SWITCH]["metadata"]["annotations"][STAMP_ANNOTATION]
    return stamp


def phases(api: NativeApi) -> dict[str, str]:
    """Return the phase conditions of validating policies of rules, by slot."""
    return {
        name[2]: "".join(
            each["expression"] for each in policy["spec"]["matchConditions"] if each["name"] == PHASE_CONDITION
        )
        for name, policy in api.named("validatingadmissionpolicies").items()
        if name.endswith("deny-fail")
    }  # fmt: skip


def slot_of(api: NativeApi) -> str:
    name: str = api.objects[SWITCH]["spec"]["policyName"]
    return name[-1]


def test_the_first_policies_are_created_with_mutations_before_checks(api: NativeApi, clock: Clock) -> None:
    replica = Replica(api, clock)
    replica.run(2)

    kinds = [path.split("/")[-2] for _, path in api.writes]
    assert kinds == [
        "customresourcedefinitions", "gpuoffers", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
    ]  # fmt: skip
    replica.run(writer.PROPAGATION_SECONDS + 3)
    assert len(api.named("validatingadmissionpolicybindings")) == len(api.named("validatingadmissionpolicies")) > 1
    assert set(phases(api).values()) == {""}
    assert replica.status.active == replica.status.wanted == active_stamp(api)
    assert (replica.status.writes, replica.status.problem) == (True, None)


def test_nothing_is_written_while_nothing_changes(api: NativeApi, replica: Replica) -> None:
    replica.run(writer.CONFIRMATION_SECONDS - 10)
    assert api.writes == []
    replica.run(60)
    assert {path for _, path in api.writes} == {f"{OFFERS}/x-{slot_of(api)}"}  # confirmed, for their age
    assert len(api.writes) == 2


def test_offers_are_written_when_an_answer_changes_at_most_once_a_second(api: NativeApi, replica: Replica) -> None:
    offers = f"{OFFERS}/x-{slot_of(api)}"
    replica.run(writer.OFFERS_SECONDS)
    api.writes.clear()
    replica.see(cluster({GPU: 1}, {GPU: 2}))  # the same shapes count
    replica.run()
    assert api.writes == []
    replica.see(cluster({GPU: 4}))
    replica.run()
    assert api.objects[offers]["spec"]["ladders"] == {"mig": [{GPU: 4}]}
    for amount in range(5, 25):
        replica.see(cluster({GPU: amount}))
        replica.run(0.1)
    assert len(api.writes) <= 4
    replica.run(1.1)
    assert api.objects[offers]["spec"]["ladders"] == {"mig": [{GPU: 24}]}
    assert api.objects[offers]["status"]["writer"] == replica.status.writer


def test_a_stale_cluster_is_written_as_unknown_and_one_never_read_is_not(api: NativeApi, replica: Replica) -> None:
    offers = f"{OFFERS}/x-{slot_of(api)}"
    replica.see(Cluster(freshness=Freshness.STALE))
    replica.run(2)
    assert api.objects[offers]["spec"]["known"] is False
    replica.see(TWO)
    replica.run(2)
    replica.see(UNKNOWN_CLUSTER)
    replica.run(5)
    assert api.objects[offers]["spec"]["known"] is True


def test_a_change_of_rules_switches_once_and_compares_stamps_meanwhile(api: NativeApi, replica: Replica) -> None:
    before, old = active_stamp(api), slot_of(api)
    replica.serve(rules(2), "second")
    seen = []
    for _ in range(600):
        replica.run(0.1)
        seen.append((slot_of(api), tuple(sorted(phases(api).items()))))
    steps = list(dict.fromkeys(seen))
    new = slot_of(api)
    after = active_stamp(api)
    assert (new, after) != (old, before)
    assert [slot for slot, _ in steps] == sorted([slot for slot, _ in steps], key=[old, new].index)
    stamp = f"object.metadata.?annotations[?'{STAMP_ANNOTATION}'].orValue('')"
    outgoing = f"request.operation != 'CREATE' || {stamp} != '{after}'"
    incoming = f"request.operation != 'CREATE' || {stamp} == '{after}'"
    # When the switch changes, both slots are complete and compare stamps; in the end, one is left that compares none.
    change = dict(next(found for slot, found in steps if slot == new))
    assert change == {old: outgoing, new: incoming}
    assert dict([found for slot, found in steps if slot == old][-1]) == change
    assert dict(steps[-1][1]) == {new: ""}
    assert all(f"x-{old}" not in path for path in api.objects)
    assert sum(path == SWITCH for _, path in api.writes) == 1


def views(states: list[tuple[float, dict[str, Any]]], lag: float) -> Iterator[list[Any]]:
    """Yield what an API server may know: of each kind, the objects at some time of the last seconds."""
    for now, _ in states:
        recent = [objects for at, objects in states if now - lag <= at <= now]
        before = [objects for at, objects in states if at < now - lag][-1:]
        of_kinds = [
            [[each for path, each in objects.items() if path.split("/")[-2] == kind] for objects in [*before, *recent]]
            for kind in ("mutatingadmissionpolicies", SWITCH.split("/")[-2], *CHECKS)
        ]
        for parts in product(*([each for i, each in enumerate(of) if each not in of[:i]] for of in of_kinds)):
            yield [*chain.from_iterable(parts)]


def test_one_rule_set_decides_each_pod_whatever_an_api_server_has_noticed(api: NativeApi, clock: Clock) -> None:
    def rule_set(cores: int) -> RuleSet:
        amounts = "c.?resources.requests.orValue({})"
        gpu = f"'{GPU}' in {amounts}"
        return compiled(
            injection({"cpu": str(cores)}, gpu_type="V100"),
            validation(f"object.spec.containers.all(c, !({gpu}) || {amounts}.cpu == '{cores}')"),
            validation("!('app' in object.metadata.?labels.orValue({}))", name=f"w{cores}"),
        )

    replica = Replica(api, clock, rule_set(1))
    states: list[tuple[float, dict[str, Any]]] = []
    replica.run(65)
    replica.serve(rule_set(2), "second")
    for _ in range(700):
        replica.run(0.1)
        if not states or states[-1][1] != api.objects:
            states.append((clock.now, deepcopy(api.objects)))
    typed = {**limited({GPU: "1"}), "metadata": {"name": "p", "annotations": {GPU_TYPE_ANNOTATION: "V100"}}}
    labelled = {**limited({}), "metadata": {"name": "p", "labels": {"app": "a"}}}
    stamps = {each["metadata"]["annotations"][STAMP_ANNOTATION] for _, objects in states for each in [objects[SWITCH]]}
    forged = [
        {**labelled, "metadata": {**labelled["metadata"], "annotations": {STAMP_ANNOTATION: each}}} for each in stamps
    ]
    seen, amounts = 0, set()
    for documents in views(states, writer.PROPAGATION_SECONDS - 1):
        outcome = admitted(documents, typed)
        assert outcome.denied == []
        amounts.add(outcome.pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        assert all(admitted(documents, each).denied for each in (labelled, *forged))
        seen += 1
    assert amounts == {"1", "2"}
    assert seen > len(states)


def test_the_stamp_does_not_depend_on_the_files_of_rules_but_on_all_else() -> None:
    def stamp(rule_set: RuleSet, digest: str = "d", settings: Settings = SETTINGS) -> str:
        return export(ServedRules(rule_set=rule_set, digest=digest), settings).stamp

    assert stamp(rules()) == stamp(rules())
    assert len({stamp(rules()), stamp(rules(2)), stamp(rules(), "e"), stamp(rules(), "d", Settings(name="y"))}) == 4
    exported = export(ServedRules(rule_set=rules(), digest="d"), SETTINGS).rules
    for slot in ("a", "b"):
        assert NativeObjects(exported, "d", SETTINGS, slot).stamp == stamp(rules())


def test_rules_that_change_back_before_the_switch_stay_active(api: NativeApi, replica: Replica) -> None:
    before = active_stamp(api)
    first = replica.state.served
    replica.serve(rules(2), "second")
    replica.run(3)
    assert len(phases(api)) == 2
    replica.state.served = first
    replica.run(60)
    assert active_stamp(api) == before
    assert list(phases(api).values()) == [""]


def test_a_third_rule_set_waits_until_pods_of_the_first_are_through(api: NativeApi, replica: Replica) -> None:
    replica.serve(rules(2), "second")
    replica.run(10)
    second = active_stamp(api)
    replica.serve(rules(3), "third")
    replica.run(writer.SETTLE_SECONDS - 10)
    assert active_stamp(api) == second
    replica.run(30)
    assert active_stamp(api) == replica.status.wanted != second


def test_another_replica_continues_a_change(api: NativeApi, clock: Clock, replica: Replica) -> None:
    old = slot_of(api)
    replica.serve(rules(2), "second")
    replica.run(3)
    other = Replica(api, clock, rules(3))
    other.run(120)  # the first one does not run any more
    assert other.status.writes
    assert active_stamp(api) == other.status.wanted
    assert slot_of(api) != old
    assert list(phases(api).values()) == [""]


def staying(number: int) -> Any:
    """Return a validation that stays with the webhook, and denies every pod."""
    return validation(check("cluster.available('a.b/c') > 0", f"stays {number}"), name="stays")


def decided(replica: Replica, path: str, stamp: str = "") -> tuple[bool, str]:
    """Return whether the webhook changes a pod with a GPU, and the message of its denial."""
    annotations = {GPU_TYPE_ANNOTATION: "V100", STAMP_ANNOTATION: stamp}
    made = review({**limited({GPU: "1"}), "metadata": {"name": "p", "annotations": annotations}})
    response = call(application(replica.state), path, encoded(made)).response
    return "patch" in response, response.get("status", {}).get("message", "")


def test_the_webhook_evaluates_the_rules_that_active_policies_leave(api: NativeApi, clock: Clock) -> None:
    exported = validation(check("false", "exported"), name="exported")
    replica = Replica(api, clock, rules(1, exported, staying(1)))
    assert decided(replica, "/mutate/native") == (True, "")  # no policy is active yet
    assert "exported" in decided(replica, "/validate/native")[1]
    replica.run(65)
    replica.see(cluster({GPU: 3}))  # decisions are cached for each view

    assert decided(replica, "/mutate/native") == (False, "")
    assert "stays 1" in decided(replica, "/validate/native")[1]
    assert "exported" not in decided(replica, "/validate/native")[1]
    # Other configurations have all rules.
    assert decided(replica, "/mutate") == (True, "")
    assert "exported" in decided(replica, "/validate")[1]

    # Until the policies of other rules are active, the former rules decide all pods.
    before = slot_of(api)
    replica.serve(rules(2, exported, staying(2)), "second")
    first = active_stamp(api)
    while slot_of(api) == before:
        assert "stays 1" in decided(replica, "/validate/native")[1]
        assert "stays 1" in decided(replica, "/validate")[1]
        replica.run(1)
        # Replicas and API servers may notice the switch at other times: a stamp selects all rules of its rule set.
        new = decided(replica, "/validate/native", replica.status.wanted)[1]
        assert "stays 2" in new
        assert "exported" in new
    replica.run(writer.CHECK_SECONDS)
    assert "stays 2" in decided(replica, "/validate/native")[1]
    assert "exported" in decided(replica, "/validate/native")[1]  # some API servers may not have the policies yet
    assert "stays 1" in decided(replica, "/validate/native", first)[1]
    for number, digest in ((3, "third"), (2, "second")):  # further reloads keep the former rules
        replica.serve(rules(number, exported, staying(number)), digest)
        replica.run(writer.CHECK_SECONDS)
        assert "stays 1" in decided(replica, "/validate/native", first)[1]
    replica.run(writer.SETTLE_SECONDS)
    assert "stays 2" in decided(replica, "/validate/native", first)[1]
    assert "exported" not in decided(replica, "/validate/native")[1]
    # What is active is unknown as long as the API server does not answer.
    failing(api, "PUT", "/leases/", Cause.UNREACHABLE)
    replica.run(writer.SETTLE_SECONDS + 20)
    assert "exported" in decided(replica, "/validate/native")[1]
    failing(api, "none", "", Cause.FORBIDDEN)
    # Policies of unknown rules: the webhook has all of its own.
    api.objects[SWITCH]["metadata"]["annotations"][STAMP_ANNOTATION] = "other"
    other = Replica(api, clock, rules(3, exported))
    other.run(writer.CHECK_SECONDS)
    assert decided(other, "/mutate/native") == (True, "")


def test_rules_without_exports_delete_all_policies(api: NativeApi, replica: Replica) -> None:
    replica.serve(compiled(ladder(rung(MIG), rung(GPU), offered=Offered.AVAILABLE)), "none")
    replica.run(5)
    assert not [path for path in api.objects if path.startswith((ADMISSION, OFFERS))]
    assert api.writes[0] == ("DELETE", SWITCH)


@contextmanager
def refusing(api: NativeApi, cause: Cause = Cause.INVALID) -> Iterator[None]:
    """Refuse policies of the validation w."""

    def refuse(method: str, path: str, body: Any) -> None:
        if "'w' == 'w'" in str(body.get("spec", {}).get("validations")):
            raise ApiError(cause, "422: not valid")

    api.refuse = refuse
    try:
        yield
    finally:
        api.refuse = lambda method, path, body: None


@pytest.mark.parametrize("cause", [Cause.INVALID, Cause.FORBIDDEN])
def test_rules_that_the_api_server_refuses_leave_all_as_it_is(api: NativeApi, replica: Replica, cause: Cause) -> None:
    objects = deepcopy({path: each for path, each in api.objects.items() if path != LEASE})
    with refusing(api, cause):
        replica.serve(rules(1, REFUSED), "second")
        replica.run(10)
        left = {path: each["spec"] for path, each in api.objects.items() if path.startswith(ADMISSION)}
        assert left == {path: each["spec"] for path, each in objects.items() if path.startswith(ADMISSION)}
        assert "ValidatingAdmissionPolicy x-" in replica.status.problem
        # What is active is still restored.
        api.delete(f"{ADMISSION}/mutatingadmissionpolicies/x-{slot_of(api)}")
        replica.run(5)
        assert f"{ADMISSION}/mutatingadmissionpolicies/x-{slot_of(api)}" in api.objects
    replica.run(writer.REFUSED_SECONDS + 20)
    assert replica.status.problem is None
    assert active_stamp(api) == replica.status.wanted


def test_a_change_is_completed_while_later_rules_are_refused(api: NativeApi, replica: Replica) -> None:
    replica.serve(rules(2), "second")
    replica.run(10)
    second = active_stamp(api)
    assert len(phases(api)) == 2
    with refusing(api):
        for digest in ("third", "fourth"):
            replica.serve(rules(1, REFUSED), digest)
            replica.run(30)
        assert (active_stamp(api), [*phases(api).values()]) == (second, [""])
        assert replica.status.problem


def other_selector(document: Any) -> None:
    document["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"no": "pod"}}


CHANGES: dict[str, Callable[[NativeApi, str], None]] = {
    "policy edited": lambda api, slot: api.edit(f"{ADMISSION}/mutatingadmissionpolicies/x-{slot}", other_selector),
    "policy deleted": lambda api, slot: api.delete(f"{ADMISSION}/mutatingadmissionpolicies/x-{slot}"),
    "check deleted": lambda api, slot: api.delete(f"{ADMISSION}/validatingadmissionpolicies/x-{slot}-deny-fail"),
    "switch deleted": lambda api, slot: api.delete(SWITCH),
    "switch edited": lambda api, slot: api.edit(SWITCH, lambda it: it["spec"].update(policyName="none")),
    "definition deleted": lambda api, slot: api.delete(DEFINITION),
    "definition edited": lambda api, slot: api.edit(DEFINITION, lambda it: it["spec"].update(scope="Other")),
    "offers deleted": lambda api, slot: api.delete(f"{OFFERS}/x-{slot}"),
    "offers edited": lambda api, slot: api.edit(f"{OFFERS}/x-{slot}", lambda it: it["spec"].update(known=False)),
    "label removed": lambda api, slot: api.objects[SWITCH]["metadata"]["labels"].clear(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_others_change_is_restored(api: NativeApi, replica: Replica, change: str) -> None:
    def content() -> Any:
        return {
            path: deepcopy((each["spec"], each["metadata"]["labels"], each["metadata"]["annotations"]))
            for path, each in api.objects.items()
            if path != LEASE
        }

    before, slot = content(), slot_of(api)
    CHANGES[change](api, slot)
    assert content() != before
    mutating = f"{ADMISSION}/mutatingadmissionpolicies/x-{slot}"
    replica.run(writer.CHECK_SECONDS + 1)
    assert content().keys() == before.keys()
    assert {path for path, each in content().items() if each != before[path]} <= {mutating}
    replica.run(writer.PROPAGATION_SECONDS + writer.CHECK_SECONDS)  # until then, all pods are stamped
    assert content() == before


def test_two_replicas_have_one_writer(api: NativeApi, clock: Clock, replica: Replica) -> None:
    other = Replica(api, clock)
    for _ in range(300):
        replica.run()
        other.run()
        clock.now += 0.1
        assert [replica.status.writes, other.status.writes] == [True, False]
    assert other.status.active == replica.status.active
    assert other.status.writer == replica.status.writer


def test_another_replica_takes_over_within_20_seconds(api: NativeApi, clock: Clock, replica: Replica) -> None:
    other = Replica(api, clock, on=cluster({GPU: 8}))
    other.run(5)
    replica.run()
    begin = clock.now
    while not other.status.writes:
        assert api.objects[f"{OFFERS}/x-{slot_of(api)}"]["spec"]["ladders"] == {"mig": [{GPU: 2}]}
        other.run(0.1)
        assert clock.now - begin < 20
    assert clock.now - begin > lease.HOLD_SECONDS
    other.run(1)
    assert api.objects[f"{OFFERS}/x-{slot_of(api)}"]["spec"]["ladders"] == {"mig": [{GPU: 8}]}
    api.writes.clear()
    replica.run(10)
    assert (replica.status.writes, replica.status.writer, api.writes) == (False, other.status.writer, [])


def test_two_installations_share_the_definition(api: NativeApi, clock: Clock) -> None:
    for name in ("x", "y"):
        role = {"metadata": {"name": f"{name}-native", "uid": f"role-{name}"}}
        api.objects[f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}-native"] = role
    first, second = Replica(api, clock), Replica(api, clock, rules(2), settings=Settings(name="y", namespace="ns"))
    for _ in range(20):
        first.run()
        second.run()
        clock.now += 1
    api.writes.clear()
    for _ in range(10):
        first.run()
        second.run()
        clock.now += 1
    assert [path for _, path in api.writes if path == DEFINITION] == []
    owners = api.objects[DEFINITION]["metadata"]["ownerReferences"]
    assert {each["uid"] for each in owners} == {"role-x", "role-y"}
    assert [first.status.problem, second.status.problem] == [None, None]


def test_a_replica_that_stops_releases_the_lease(api: NativeApi, clock: Clock, replica: Replica) -> None:
    other = Replica(api, clock)
    other.run(3)
    replica.writer.stop()
    replica.run(5)  # a step that was under way
    assert replica.status.writes is False
    other.run(lease.RENEWAL_SECONDS)
    assert other.status.writes
    other.writer.stop()
    api.unreachable = True
    other.writer.stop()  # a failure to release is logged


def test_a_writer_that_cannot_renew_stops_before_another_takes_over(
    api: NativeApi, clock: Clock, replica: Replica
) -> None:
    api.unreachable = True
    replica.see(cluster({GPU: 9}))
    replica.run(lease.HOLD_SECONDS + 1)
    assert replica.status.writes is False
    assert replica.status.problem
    assert lease.HOLD_SECONDS + 5.0 <= lease.LEASE_SECONDS
    api.unreachable = False
    replica.run(5)
    assert (replica.status.writes, replica.status.problem) == (True, None)


def test_the_times_in_the_lease_do_not_matter(api: NativeApi, clock: Clock, replica: Replica) -> None:
    other = Replica(api, clock)
    other.run()
    for year in ("1970", "2970"):
        api.objects[LEASE]["spec"]["renewTime"] = f"{year}-01-01T00:00:00.000000Z"
        for _ in range(100):
            other.run()
            replica.run()
            clock.now += 0.1
            assert not other.status.writes
    assert replica.status.writes


def test_objects_are_owned_by_the_role_of_the_chart(api: NativeApi, clock: Clock) -> None:
    role = {"metadata": {"name": "x-native", "uid": "u"}}
    api.objects["/apis/rbac.authorization.k8s.io/v1/clusterroles/x-native"] = role
    Replica(api, clock).run(30)
    owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "x-native", "uid": "u"}
    made = {path: each for path, each in api.objects.items() if "clusterroles" not in path}
    assert len(made) > 8
    assert all(each["metadata"]["ownerReferences"] == [owner] for each in made.values())


def test_rules_that_must_be_exported_are_refused_if_they_cannot() -> None:
    staying = compiled(ladder(rung(MIG), rung(GPU), offered=Offered.AVAILABLE))
    with pytest.raises(UnusableError, match="cannot be exported: offered: Available"):
        export(ServedRules(rule_set=staying, digest="d"), SETTINGS, only=True)
    assert export(ServedRules(rule_set=staying, digest="d"), SETTINGS).stamp == ""


def failing(api: NativeApi, method: str, part: str, cause: Cause) -> None:
    """Let calls that change a path with this part fail."""

    def refuse(called: str, path: str, body: Any) -> None:
        if called == method and part in path:
            raise ApiError(cause, cause.value)

    api.refuse = refuse


def test_of_two_replicas_that_take_the_lease_one_gets_it(api: NativeApi, clock: Clock) -> None:
    replica = Replica(api, clock)
    failing(api, "PUT", "/leases/", Cause.CONFLICT)
    replica.run(3)
    assert (replica.status.writes, replica.status.problem, api.writes) == (False, None, [])
    failing(api, "PATCH", "/leases/", Cause.FORBIDDEN)
    del api.objects[LEASE]
    replica.run(3)
    assert replica.status.problem == "forbidden"
    failing(api, "none", "", Cause.FORBIDDEN)
    replica.run(3)
    assert (replica.status.writes, replica.status.problem) == (True, None)


def test_a_problem_lasts_until_the_calls_succeed(api: NativeApi, replica: Replica, caplog: Any) -> None:
    caplog.set_level("INFO", "server.native.writer")
    api.delete(f"{ADMISSION}/mutatingadmissionpolicies/x-{slot_of(api)}")
    failing(api, "PATCH", "mutatingadmissionpolicies", Cause.FORBIDDEN)
    replica.run(20)
    failing(api, "none", "", Cause.FORBIDDEN)
    replica.run(5)
    assert [record.getMessage() for record in caplog.records] == [
        "policies or offers cannot be written: forbidden",
        "policies and offers can be written again",
    ]


def test_an_unexpected_answer_is_a_problem_until_the_next_step(api: NativeApi, replica: Replica) -> None:
    metadata = api.objects[SWITCH].pop("metadata")
    replica.clock.now += writer.CHECK_SECONDS
    with pytest.raises(KeyError):
        replica.run()
    assert replica.status.problem == "unexpected error: see the server's log"
    api.objects[SWITCH]["metadata"] = metadata
    replica.run(writer.CHECK_SECONDS)
    assert replica.status.problem is None


@pytest.mark.parametrize("name", ["other", "x2-a"])
def test_an_object_of_another_name_is_left_alone(api: NativeApi, replica: Replica, name: str) -> None:
    other = f"{ADMISSION}/validatingadmissionpolicies/{name}"
    api.objects[other] = deepcopy(next(iter(api.named("validatingadmissionpolicies").values())))
    api.objects[other]["metadata"]["name"] = name
    replica.run(10)
    replica.serve(rules(2), "second")
    replica.run(65)
    assert active_stamp(api) == replica.status.wanted
    assert other in api.objects
    assert all(path != other for _, path in api.writes)


def test_a_write_that_conflicts_is_repeated_after_the_next_read(api: NativeApi, replica: Replica) -> None:
    api.edit(SWITCH, lambda it: it["spec"].update(policyName="none"))
    failing(api, "PUT", SWITCH, Cause.CONFLICT)
    replica.run(5)
    assert (api.objects[SWITCH]["spec"]["policyName"], replica.status.problem) == ("none", None)
    failing(api, "none", "", Cause.CONFLICT)
    replica.run(5)
    assert slot_of(api) in writer.SLOTS


@pytest.mark.parametrize("cause", [Cause.UNAUTHORIZED, Cause.REFUSED])
def test_a_failed_write_of_offers_is_reported_and_repeated(api: NativeApi, replica: Replica, cause: Cause) -> None:
    failing(api, "PATCH", OFFERS, cause)
    replica.see(cluster({GPU: 9}))
    replica.run(3)
    assert replica.status.problem == cause.value
    failing(api, "none", "", cause)
    replica.run(3)
    assert api.objects[f"{OFFERS}/x-{slot_of(api)}"]["spec"]["ladders"] == {"mig": [{GPU: 9}]}
    assert replica.status.problem is None


@pytest.mark.parametrize("cause", [Cause.MISSING, Cause.FORBIDDEN])
def test_objects_that_are_gone_need_no_deletion(api: NativeApi, replica: Replica, cause: Cause) -> None:
    failing(api, "DELETE", "mutatingadmissionpolicies", cause)
    replica.serve(compiled(ladder(rung(MIG), rung(GPU), offered=Offered.AVAILABLE)), "none")
    replica.run(5)
    assert replica.status.problem == (None if cause is Cause.MISSING else "forbidden")


def test_the_task_runs_until_it_is_stopped(api: NativeApi, clock: Clock) -> None:
    replica = Replica(api, clock)
    replica.writer.start()
    end = monotonic() + 60
    while not replica.status.writes and monotonic() < end:
        clock.now += 1
        sleep(0.01)
    replica.writer.stop()
    assert replica.status.writer
