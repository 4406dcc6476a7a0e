"""A live cluster is listed completely, within bounds, or not at all."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest.mock import ANY

import pytest

from rules_engine.model.kubernetes.cluster_objects import (
    API_KINDS,
    AUTOSCALER_STATUS,
    FINDINGS,
    STATUS_NAME,
    ClusterObjects,
    plain_kind,
)
from rules_engine.model.kubernetes.native_objects import OFFERS
from rules_engine.model.kubernetes.removed_values import MARK
from rules_engine.server.cluster import listing
from rules_engine.server.cluster.connection import ApiError, Cause, Connection
from rules_engine.server.cluster.listing import MAX_LISTS, MAX_TRIES, Listing
from rules_engine.server.timing import MAX_RETRY_AFTER_SECONDS
from tests.support.apiserver import ApiServer, Body, Nothing, Reset, Silence, Status, bound, namespace, node
from tests.support.cluster import Clock, plain
from tests.support.cluster_files import autoscaler_status, item

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SECONDS = 45.0


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.put("nodes", node("one", {GPU: 4}))
    return api


@dataclass
class Reads:
    """Reads of a stand-in without pauses: those that were requested, and the progress that was reported."""

    api: ApiServer
    clock: Clock = field(default_factory=Clock)
    pauses: list[float] = field(default_factory=list)
    progress: list[tuple[str, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def read(self, *, whole: bool = False) -> ClusterObjects:
        listed = Listing(
            Connection(plain(self.api)),
            seconds=SECONDS,
            progress=lambda collection, objects: self.progress.append((collection, objects)),
            clock=self.clock,
            wait=self._wait,
            now=lambda: NOW,
        ).read(API_KINDS, whole=whole)
        self.warnings = [*listed.warnings()]
        return listed.objects

    def failure(self) -> ApiError:
        with pytest.raises(ApiError) as failed:
            self.read()
        return failed.value

    def _wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += seconds


@pytest.fixture
def reads(api: ApiServer) -> Reads:
    return Reads(api)


def test_all_kinds_are_listed_at_their_paths(api: ApiServer, reads: Reads) -> None:
    names = {kind: f"a-{each.resource}" for kind, each in API_KINDS.items()}
    names[AUTOSCALER_STATUS] = STATUS_NAME.name
    for kind, each in API_KINDS.items():
        api.put(each.resource, {"metadata": {"name": names[kind], "namespace": "ml"}})

    listed = reads.read(whole=True)

    for kind in API_KINDS:
        assert listed.find(kind, names[kind], "ml") is not None
        assert listed.of(kind)[-1]["kind"] == plain_kind(kind)
    assert (listed.absent, reads.warnings, listed.now) == (frozenset(), [], NOW)


def test_a_cluster_of_many_pages_is_listed_completely(api: ApiServer, reads: Reads) -> None:
    for number in range(1201):
        api.put("pods", bound(f"p{number}", "one"))

    assert len(reads.read().pods) == 1201
    assert [done for collection, done in reads.progress if collection == "pods"] == [50, 550, 1050, 1201]


def test_values_that_are_never_kept_are_removed_unless_whole_objects_are_read(api: ApiServer, reads: Reads) -> None:
    pod = bound("p", "one")
    pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "s3cret"}]
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "s3cret", "kept": "yes"}
    api.put("pods", pod)
    api.put("gpuoffers", {"metadata": {"name": "a", "labels": {"x": "s3cret"}}, "spec": {"omitted": {}, "x": "s3cret"}})

    listed = reads.read()
    assert "s3cret" not in str([listed.pods, listed.of(OFFERS)])
    assert listed.pods[0].metadata["annotations"] == {"kept": "yes", MARK: ANY}
    assert listed.of(OFFERS) == (
        {
            "apiVersion": "gpurules.io/v1",
            "kind": OFFERS,
            "metadata": {"name": "a", "resourceVersion": ANY},
            "spec": {"omitted": {}},
        },
    )
    whole = reads.read(whole=True)
    assert whole.pods[0].spec == pod["spec"]
    assert whole.pods[0].metadata["annotations"] == pod["metadata"]["annotations"]
    assert whole.of(OFFERS)[0].spec == {"omitted": {}, "x": "s3cret"}


def test_kinds_that_are_not_listed_are_absent(api: ApiServer) -> None:
    listed = Listing(Connection(plain(api)), seconds=SECONDS).read(["Node", "Pod"])
    assert listed.objects.absent == API_KINDS.keys() - {"Node", "Pod"}
    assert listed.unread == {}


def test_objects_share_equal_values(api: ApiServer, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("p", "q"):
        api.put("pods", bound(name, "one", spec={"tolerations": [{"key": "x" * listing.MAX_SHARED_BYTES}]}))

    p, q = reads.read().pods
    assert p.spec["containers"] is q.spec["containers"]
    assert p.spec["tolerations"] is not q.spec["tolerations"]
    monkeypatch.setattr(listing, "MAX_SHARED", 0)
    assert reads.read().pods[1].spec == q.spec


def test_events_of_the_doctor_are_not_findings(api: ApiServer, reads: Reads) -> None:
    for component in (FINDINGS, "kubelet", "gpu-rules"):
        api.put("events", {"metadata": {"name": component, "namespace": "ml"}, "source": {"component": component}})

    assert [event.name for event in reads.read().events] == ["gpu-rules", "kubelet"]


@pytest.mark.parametrize("status", [403, 404])
def test_kinds_that_cannot_be_listed_are_absent_and_named(api: ApiServer, reads: Reads, status: int) -> None:
    api.put("runtimeclasses", {"metadata": {"name": "nvidia"}})
    api.fail("runtimeclasses", Status(status, "not for you"))

    listed = reads.read()

    assert listed.absent == {"RuntimeClass"}
    assert reads.warnings == [f"cannot list runtimeclasses: {status}: not for you"]
    assert [one.name for one in listed.nodes] == ["one"]


def test_kinds_that_may_be_listed_in_one_namespace_only_are_listed_there(api: ApiServer) -> None:
    api.forbidden = {"nodes", "pods", "statefulsets", "jobs", "runtimeclasses"}
    page = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "p", "namespace": "ml"}}]}
    api.single["/api/v1/namespaces/ml/pods"] = page
    api.single["/apis/apps/v1/namespaces/ml/statefulsets"] = {**page, "items": []}

    listed = Listing(Connection(plain(api)), seconds=SECONDS).read(API_KINDS, namespace="ml")

    assert listed.objects.partial == {"Pod": "ml", "StatefulSet": "ml"}
    assert [listed.objects.unread("Pod", each) for each in ("", "ml", "b")] == [
        text := "pods of other namespaces",
        "",
        text,
    ]
    assert listed.objects.absent == {"Node", "Job", "RuntimeClass"}
    assert [each.name for each in listed.objects.pods] == ["p"]
    (warning,) = listed.warnings()
    text = "cannot list nodes, jobs, runtimeclasses; only pods, statefulsets of namespace ml are read: 403: nodes is"
    assert warning.startswith(text)
    assert [each.collection for each in api.requests if "namespaces/" in each.collection] == [
        "/api/v1/namespaces/ml/pods",
        "/apis/apps/v1/namespaces/ml/statefulsets",
        "/apis/batch/v1/namespaces/ml/jobs",
    ]


@pytest.mark.parametrize("status", [403, 404])
def test_an_api_without_native_policies_has_none(api: ApiServer, reads: Reads, status: int) -> None:
    api.fail("gpuoffers", Status(status, "not for you"))

    listed = reads.read()

    assert listed.absent == ({OFFERS} if status == 403 else frozenset())
    assert reads.warnings == (["cannot list gpuoffers: 403: not for you"] if status == 403 else [])


@pytest.mark.parametrize("groups", [{}, {"groups": [{"name": "kueue.x-k8s.io", "versions": []}]}])
def test_a_kind_whose_api_is_not_installed_has_no_objects_even_for_users_without_rights(
    api: ApiServer, reads: Reads, groups: Any
) -> None:
    api.single["/apis"] = groups
    api.forbidden = {each.resource for each in API_KINDS.values() if each.optional and each.group}

    assert (reads.read().absent, reads.warnings) == (frozenset(), [])


def test_an_installed_kind_that_may_not_be_listed_is_named(api: ApiServer, reads: Reads) -> None:
    api.forbidden = {"workloads.kueue.x-k8s.io", "configmaps"}

    assert reads.read().absent == {"Workload", AUTOSCALER_STATUS}
    assert reads.warnings[0].startswith("cannot list workloads.kueue.x-k8s.io, configmaps: 403")


def test_a_kind_of_another_project_is_listed_in_the_first_version_with_it(api: ApiServer, reads: Reads) -> None:
    versions = [{"version": version} for version in ("v1", "v1beta2", "v1beta1")]
    api.single["/apis"] = {"groups": [{"name": "kueue.x-k8s.io", "versions": versions}, {"name": "karpenter.sh"}, 3]}
    api.put("workloads.kueue.x-k8s.io", {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "a"}})

    assert [each["apiVersion"] for each in reads.read().of("Workload")] == ["kueue.x-k8s.io/v1beta2"]
    assert len([each for each in api.requests if each.collection == "/apis"]) == 1


def test_the_status_of_the_autoscaler_is_the_only_config_map_that_is_listed(api: ApiServer, reads: Reads) -> None:
    for each in (autoscaler_status("ready"), item("ConfigMap", "secret", "kube-system", data={"status": "x"})):
        api.put("configmaps", each)

    assert [each["data"] for each in reads.read().of(AUTOSCALER_STATUS)] == [{"status": "ready"}]


def test_without_any_right_nothing_is_diagnosed(api: ApiServer, reads: Reads) -> None:
    api.single["/apis"] = {}
    api.forbidden = {each.resource for each in API_KINDS.values()}
    with pytest.raises(ApiError, match="cannot list nodes: 403"):
        Listing(Connection(plain(api)), seconds=SECONDS).read(API_KINDS, needed=())


@pytest.mark.parametrize("status", [403, 404])
def test_a_cluster_without_devices_of_drivers_is_listed(api: ApiServer, reads: Reads, status: int) -> None:
    kinds = {"DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices", "ResourceClaim": "resourceclaims"}
    for collection in kinds.values():
        api.fail(collection, Status(status, "not for you"))

    listed = reads.read()

    assert listed.absent == kinds.keys()
    lines = [", ".join(kinds.values())] if status == 403 else kinds.values()
    assert reads.warnings == [f"cannot list {each}: {status}: not for you" for each in lines]


@pytest.mark.parametrize("denied", ["nodes", "pods", "nodes and pods"])
def test_without_nodes_or_pods_there_is_nothing_to_diagnose(api: ApiServer, reads: Reads, denied: str) -> None:
    api.forbidden = set(denied.split(" and "))

    failure = reads.failure()

    assert failure.cause is Cause.FORBIDDEN
    named = {name for name in ("nodes", "pods") if f"cannot list {name}: 403: {name} is forbidden" in str(failure)}
    assert named == api.forbidden


def test_any_other_failure_ends_the_listing(api: ApiServer, reads: Reads) -> None:
    api.tokens = set()

    assert str(reads.failure()) == "cannot list nodes: 401: Unauthorized"


def test_a_list_whose_pages_expire_begins_anew(api: ApiServer, reads: Reads) -> None:
    for number in range(60):
        api.put("nodes", node(f"n{number}"))
    api.fail("nodes", Nothing(), Status(410, "too old"))

    assert len(reads.read().nodes) == 61
    assert len(api.lists("nodes")) == 2


def test_a_list_begins_anew_a_limited_number_of_times(api: ApiServer, reads: Reads) -> None:
    api.fail("nodes", *[Status(410, "too old")] * MAX_LISTS)

    assert reads.failure().cause is Cause.GONE
    assert len(api.lists("nodes")) == MAX_LISTS


def test_a_page_is_requested_again_from_a_busy_server(api: ApiServer, reads: Reads) -> None:
    api.fail("nodes", Status(429, "too many requests", {"Retry-After": "7"}), Body(b'{"items', promised=1000))

    assert len(reads.read().nodes) == 1
    assert len(reads.pauses) == 2
    assert reads.pauses[0] == 7


def test_a_page_is_requested_a_limited_number_of_times(api: ApiServer, reads: Reads) -> None:
    api.fail("nodes", *[Status(429, "too many requests")] * MAX_TRIES)

    assert reads.failure().cause is Cause.THROTTLED
    assert len(reads.pauses) == MAX_TRIES - 1


def test_a_pause_that_exceeds_the_time_is_a_failure(api: ApiServer, reads: Reads) -> None:
    api.fail("nodes", *[Status(429, "too many requests", {"Retry-After": "90"})] * 2)

    assert reads.failure().cause is Cause.THROTTLED
    assert reads.pauses == [MAX_RETRY_AFTER_SECONDS]


def test_a_server_that_cannot_be_reached_is_not_asked_again(api: ApiServer, reads: Reads) -> None:
    api.fail("nodes", Reset())

    assert reads.failure().cause is Cause.UNREACHABLE
    assert reads.pauses == []


def test_a_listing_has_a_time_limit(api: ApiServer, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ApiServer.answer

    def slow(server: ApiServer, *arguments: Any) -> None:
        reads.clock.now += SECONDS + 1
        answer(server, *arguments)

    monkeypatch.setattr(ApiServer, "answer", slow)

    failure = reads.failure()
    assert failure.cause is Cause.TIMED_OUT
    assert str(failure) == "cannot list nodes: the cluster was not read in 45 s"


def test_a_server_that_does_not_answer_is_given_up_after_the_timeout(api: ApiServer) -> None:
    api.fail("nodes", Silence())

    with pytest.raises(ApiError, match=r"^cannot list nodes: the cluster was not read in 0\.2 s$") as failed:
        Listing(Connection(plain(api)), seconds=0.2).read(API_KINDS)
    assert failed.value.cause is Cause.TIMED_OUT


def test_lists_have_a_limit_of_their_size(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_READ_BYTES", 100)

    assert str(reads.failure()) == "cannot list nodes: the lists are larger than 100 bytes"


def test_an_endless_list_is_a_failure(api: ApiServer, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rules_engine.server.cluster.paging.MAX_OBJECTS", 20)
    page = Body(b'{"metadata": {"resourceVersion": "7", "continue": "x"}, "items": []}')
    api.fail("nodes", *[page] * 40)

    assert reads.failure().cause is Cause.TOO_LARGE


@pytest.mark.parametrize("body", [b"no", b"[]", b'{"metadata": {}, "items": []}', b'{"items": [7]}', b'{"items": "x"}'])
def test_a_body_that_is_no_list_is_a_failure(api: ApiServer, reads: Reads, body: bytes) -> None:
    api.fail("nodes", Body(body))

    assert reads.failure().cause is Cause.MALFORMED


def test_an_empty_list_may_have_null_items(api: ApiServer, reads: Reads) -> None:
    api.delete("nodes", "one")
    api.put("namespaces", namespace("ml"))

    assert list(reads.read().nodes) == []
