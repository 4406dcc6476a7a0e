"""The last words of schedulers, queues and autoscalers about waiting pods, from public reports, and near misses."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.questions.doctor.deciders import MAX_WORDS, refused_by_autoscaler, words_about
from tests.support.api import GPU, Object, ago, api_object, cluster, event, pod, reference

VOLCANO, KAI, COSCHEDULING = (
    f"PodGroup.{group}" for group in ("scheduling.volcano.sh", "scheduling.run.ai", "scheduling.x-k8s.io")
)
MESSAGE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
NO_SCALE_UP = "pod didn't trigger scale-up: 1 max node group size reached, 2 node(s) didn't match Pod's node affinity"
NO_QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor default-flavor, "
    "8 more needed"
)
OVER_QUOTA = "Workload requested 0.5 GPUs, but team-a quota is 0 GPUs"


def said(about: Object, component: str, reason: str, message: str, **members: Any) -> Object:
    """Return an Event of a component, of the type Normal."""
    sent = event(about, reason, message, type="Normal", source={"component": component}, **members)
    sent["metadata"]["name"] += f".{component.replace('/', '-')}.{sent['lastTimestamp']}"
    return sent


def words(*objects: Object, name: str = "p") -> tuple[str, ...]:
    return words_about(pod_of(cluster(*objects), name))


def pod_of(objects: ClusterObjects, name: str = "p") -> Any:
    found = objects.find("Pod", name, "ml")
    assert found is not None
    return found


def workload(owner: Object, *conditions: Object, name: str = "w", **members: Any) -> Object:
    owned = {"ownerReferences": [{"kind": owner["kind"], **owner["metadata"]}]}
    status = {"conditions": [*conditions], **members}
    return api_object("Workload", name, "ml", metadata=owned, spec={"queueName": "q"}, status=status)


def condition(kind: str, status: str, message: str, minutes: int = 10) -> Object:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": ago(minutes=minutes)}


WAITING = pod("p", {GPU: 1}, message=MESSAGE)
JOB = api_object("Job", "train", "ml")
OF_JOB = pod("p", {GPU: 1}, owner=("Job", "train"))


def test_a_refusal_of_the_autoscaler_is_quoted_and_the_schedulers_message_not_repeated() -> None:
    scheduler = said(WAITING, "default-scheduler", "FailedScheduling", MESSAGE)
    objects = WAITING, scheduler, said(WAITING, "cluster-autoscaler", "NotTriggerScaleUp", NO_SCALE_UP)
    assert words(*objects) == (f"cluster-autoscaler: {NO_SCALE_UP}",)
    assert refused_by_autoscaler(pod_of(cluster(*objects)))


@pytest.mark.parametrize("name", [None, "hami-scheduler"])
def test_what_the_scheduler_of_the_pod_says_of_its_failure_is_left_out(name: str | None) -> None:
    own = pod("p", {GPU: 1}, schedulerName=name)
    component = name or "default-scheduler"
    failed = said(own, component, "FailedScheduling", "an older message")
    filtered = said(own, component, "FilteringFailed", "no available node, 1 nodes do not meet")
    assert words(own, failed, filtered) == (f"{component}: no available node, 1 nodes do not meet",)


def test_a_scheduler_that_is_not_in_the_table_is_known_by_the_pod() -> None:
    own = pod("p", {GPU: 1}, schedulerName="ours")
    others = (said(own, name, "Waiting", name) for name in ("ours", "ours-pool-a", "other", "kubelet"))
    assert {*words(own, *others)} == {"ours: ours", "ours-pool-a: ours-pool-a"}


def test_the_last_event_of_each_component_counts() -> None:
    times = (ago(minutes=9), ago(minutes=3), ago(minutes=6))
    events = [said(WAITING, "karpenter", "Nominated", text, last=last) for text, last in zip("acb", times, strict=True)]
    assert words(WAITING, *events, said(WAITING, "cluster-autoscaler", "x", "d", last=ago(minutes=5))) == (
        "karpenter: c",
        "cluster-autoscaler: d",
    )


def test_events_of_the_new_api_have_their_component_in_another_member() -> None:
    new = event(WAITING, "Pending", "wait", reportingComponent="kueue-admission")
    assert words(WAITING, new) == ("kueue-admission: wait",)


@pytest.mark.parametrize("about", ["pod", "Job"])
def test_events_about_an_earlier_object_of_the_name_are_left_out(about: str) -> None:
    subject = OF_JOB if about == "pod" else JOB
    earlier = {**subject, "metadata": {**subject["metadata"], "uid": "uid-earlier"}}
    assert words(OF_JOB, JOB, said(earlier, "karpenter", "Nominated", "old")) == ()
    assert len(words(OF_JOB, JOB, said(subject, "karpenter", "Nominated", "new"))) == 1


def test_words_about_controllers_that_were_not_read_are_found() -> None:
    suspended = said(api_object("Job", "train", "ml"), "batch/job-kueue-controller", "Suspended", "suspended")
    assert words(OF_JOB, suspended) == ("batch/job-kueue-controller about Job ml/train: suspended",)


def test_controllers_above_controllers_count() -> None:
    owned = api_object("Job", "train", "ml", metadata={"ownerReferences": [reference("JobSet", "set")]})
    other = api_object("JobSet", "set", "ml")
    assert words(OF_JOB, owned, workload(other, condition("QuotaReserved", "False", NO_QUOTA))) == (
        f"QuotaReserved of Workload ml/w in queue q: {NO_QUOTA}",
    )
    loop = api_object("Job", "train", "ml", metadata={"ownerReferences": [reference("Job", "train")]})
    assert words(OF_JOB, loop) == ()


def test_a_controller_of_another_group_with_the_name_of_a_job_is_another_object() -> None:
    of_volcano = {**pod("p"), "metadata": {**OF_JOB["metadata"]}}
    of_volcano["metadata"]["ownerReferences"] = [{**reference("Job", "train"), "uid": "uid-volcano"}]
    sent = said(api_object("Job", "train", "ml", metadata={"uid": "uid-volcano"}), "vc-controller-manager", "x", "y")
    batch = said(JOB, "kueue-admission", "x", "z")
    assert words(of_volcano, JOB, sent, batch) == ("vc-controller-manager about Job ml/train: y",)


def test_the_conditions_of_a_workload_say_what_its_events_say_once() -> None:
    waits = workload(JOB, condition("QuotaReserved", "False", NO_QUOTA, minutes=20))
    pending = said(waits, "kueue-admission", "Pending", NO_QUOTA)
    assert words(OF_JOB, JOB, waits, pending) == (f"kueue-admission about Workload ml/w in queue q: {NO_QUOTA}",)


@pytest.mark.parametrize(
    ("kind", "status", "is_said"),
    [
        ("QuotaReserved", "True", False),
        ("Evicted", "True", True),
        ("Evicted", "False", False),
        ("Requeued", "False", True),
        ("Admitted", "True", False),
        ("PodsReady", "False", False),
    ],
)
def test_only_conditions_that_explain_a_wait_are_said(kind: str, status: str, *, is_said: bool) -> None:
    found = words(OF_JOB, JOB, workload(JOB, condition(kind, status, "why")))
    assert found == ((f"{kind} of Workload ml/w in queue q: why",) if is_said else ())


def test_admission_checks_are_said() -> None:
    check = {"name": "nodes", "state": "Pending", "message": "no capacity", "lastTransitionTime": ago(minutes=1)}
    checks = [check, {**check, "name": "ready", "state": "Ready"}, {**check, "message": ""}]
    reserved = condition("QuotaReserved", "True", "reserved")
    assert words(OF_JOB, JOB, workload(JOB, reserved, admissionChecks=checks)) == (
        "nodes of Workload ml/w in queue q: no capacity",
    )


@pytest.mark.parametrize("state", ["finished", "deleted", "of another job", "of another uid"])
def test_a_workload_that_is_over_or_of_another_owner_says_nothing(state: str) -> None:
    owner = api_object("Job", "other", "ml") if state == "of another job" else JOB
    owner = api_object("Job", "train", "ml", metadata={"uid": "uid-x"}) if state == "of another uid" else owner
    finished = [condition("Finished", "True", "done")] if state == "finished" else []
    waits = workload(owner, condition("QuotaReserved", "False", NO_QUOTA), *finished)
    waits["metadata"] |= {"deletionTimestamp": ago()} if state == "deleted" else {}
    assert words(OF_JOB, JOB, waits) == ()


def test_a_workload_of_several_pods_is_about_each() -> None:
    pods = [pod(name, {GPU: 1}) for name in "ab"]
    references = [{"kind": "Pod", **each["metadata"]} for each in pods]
    waits = workload(JOB, condition("QuotaReserved", "False", NO_QUOTA))
    waits["metadata"]["ownerReferences"] = references
    assert words(*pods, waits, name="a") == words(*pods, waits, name="b") != ()


def test_a_pod_group_of_kai_says_its_queue_and_its_reasons() -> None:
    annotated = pod("p", schedulerName="kai-scheduler", message=OVER_QUOTA, metadata={
        "annotations": {"gpu-fraction": "0.5", "pod-group-name": "pg"}
    })  # fmt: skip
    told = {"type": "UnschedulableOnNodePool", "status": "True", "lastTransitionTime": ago(minutes=1)}
    reasons = [{"reason": "OverLimit", "message": "team-a has reached its limit"}]
    status = {"schedulingConditions": [{**told, "reasons": reasons}]}
    group = api_object(KAI, "pg", "ml", spec={"queue": "team-a"}, status=status)
    other = said(annotated, "kai-scheduler", "Unschedulable", "NonPreemptibleOverQuota")
    repeated = said(annotated, "kai-scheduler", "Unschedulable", OVER_QUOTA)
    first = "the pod requests GPUs by the annotation gpu-fraction: 0.5"
    assert words(annotated, group, other) == (
        first,
        "UnschedulableOnNodePool of PodGroup ml/pg in queue team-a: team-a has reached its limit",
        "kai-scheduler: NonPreemptibleOverQuota",
    )
    assert words(annotated, repeated) == (first,)


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        (VOLCANO, {"annotations": {"scheduling.k8s.io/group-name": "pg"}}),
        (VOLCANO, {"annotations": {"scheduling.volcano.sh/group-name": "pg"}}),
        (COSCHEDULING, {"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}),
    ],
)
def test_pod_groups_are_named_by_their_pods(kind: str, metadata: Mapping[str, Any]) -> None:
    message = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"
    group = api_object(kind, "pg", "ml", spec={"queue": "q"}, status={
        "conditions": [condition("Unschedulable", "True", message), condition("Scheduled", "True", "ready")]
    })  # fmt: skip
    assert words(pod("p", metadata=metadata), group) == (f"Unschedulable of PodGroup ml/pg in queue q: {message}",)
    assert words(pod("p"), group) == ()
    assert words(pod("p", namespace="ml", metadata=metadata)) == ()


def test_a_nominated_node_is_said_and_evicted_pods_only_if_there_are_some() -> None:
    nominated = pod("p", {GPU: 1}, status={"nominatedNodeName": "a"})
    victim = pod("v", {GPU: 1}, on="a", metadata={"deletionTimestamp": ago()})
    assert words(nominated, victim) == ("the scheduler makes room on a: pods there are being evicted",)
    assert words(nominated, pod("v", on="a")) == ("the scheduler nominated a for the pod",)


@pytest.mark.parametrize(
    ("events", "refused"),
    [
        ([("cluster-autoscaler", "NotTriggerScaleUp")], True),
        ([("cluster-autoscaler", "TriggeredScaleUp"), ("cluster-autoscaler", "FailedScaleUp")], False),
        ([("cluster-autoscaler", "NotTriggerScaleUp"), ("cluster-autoscaler", "TriggeredScaleUp")], False),
        ([("karpenter", "FailedScheduling")], True),
        ([("eks-auto-mode/compute", "FailedScheduling")], True),
        ([("karpenter", "Nominated")], False),
        ([("karpenter", "FailedScheduling"), ("cluster-autoscaler", "TriggeredScaleUp")], False),
        ([("default-scheduler", "FailedScheduling")], False),
        ([("someone", "NotTriggerScaleUp")], False),
        ([], False),
    ],
)
def test_refusals_of_autoscalers(events: list[tuple[str, str]], *, refused: bool) -> None:
    sent = [
        said(WAITING, *each, "m", last=ago(minutes=20 - number)) for number, each in enumerate(events)
    ]  # fmt: skip
    assert refused_by_autoscaler(pod_of(cluster(WAITING, *sent))) is refused


def test_messages_are_quoted_on_one_line() -> None:
    (line,) = words(WAITING, said(WAITING, "karpenter", "x", "a\nb\x1b[31m" + "c" * 100_000))
    assert line.startswith("karpenter: a b")
    assert len(line) < 1_100
    malformed = {**said(WAITING, "karpenter", "x", ""), "message": ["x"], "source": "x", "reportingComponent": 3}
    assert words({**WAITING, "status": {"conditions": "x", "nominatedNodeName": 3}}, malformed) == ()


def test_thousands_of_events_and_pods_take_linear_time() -> None:
    pods = [pod(f"p{number}", owner=("Job", "train")) for number in range(1_000)]
    waits = workload(JOB, condition("QuotaReserved", "False", NO_QUOTA))
    events = [said(JOB, f"kueue-{n}", "x", f"m{n}", last=ago(seconds=n)) for n in range(20_000)]
    objects = cluster(JOB, waits, *pods, *events)
    begin = perf_counter()
    found = [words_about(each) for each in objects.pods]
    assert perf_counter() - begin < 10
    assert {len(each) for each in found} == {MAX_WORDS}
