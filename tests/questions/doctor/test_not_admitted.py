"""Workloads with GPUs that Kueue or Volcano has not admitted, and near misses."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity
from rules_engine.questions.doctor.doctor import doctor
from rules_engine.questions.doctor.never_created import find_not_admitted
from tests.support.api import GPU, Object, ago, api_object, cluster, event, node, pod, reference, template
from tests.support.remedies import has_its_risk

NO_QUOTA = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor default-flavor, "
    "8 more needed"
)
JOB = api_object("Job", "train", "ml", spec={"suspend": True, "template": template(pod(requests={GPU: 8}))})
VOLCANO = "PodGroup.scheduling.volcano.sh"


def condition(kind: str, status: str = "True", message: str = "") -> Object:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": ago(minutes=10)}


PENDING = condition("QuotaReserved", "False", NO_QUOTA)


def workload(
    *conditions: Object,
    owners: Sequence[Object] = (reference("Job", "train"),),
    of: Object | None = None,
    **spec: Any,
) -> Object:
    """Return the Workload of a Job whose pods are like `of`."""
    pod_set = {"name": "main", "count": 4, "template": template(of or pod(requests={GPU: 8}))}
    metadata = {"ownerReferences": [*owners], "creationTimestamp": ago(hours=5)}
    spec = {"queueName": "q", "podSets": [pod_set], **spec}
    return api_object(
        "Workload", "job-train-1a", "ml", metadata=metadata, spec=spec, status={"conditions": [*conditions]}
    )


def findings(*objects: Object) -> tuple[Finding, ...]:
    return find_not_admitted(cluster(*objects))


def test_a_suspended_job_waits_for_quota() -> None:
    pending = event(workload(), "Pending", NO_QUOTA, source={"component": "kueue-admission"})
    objects = cluster(node("gn-1", {GPU: 8}), JOB, workload(PENDING), pending)
    (found,) = doctor(objects, ()).findings
    assert (found.reason, found.severity, str(found.object)) == (
        "NotAdmittedByQueue",
        FindingSeverity.WARNING,
        "Job/ml/train",
    )
    assert found.message == f"the workload waits for admission to queue q: {NO_QUOTA}"
    assert found.remedies[0].command == "kubectl describe workloads.kueue.x-k8s.io -n ml job-train-1a"
    assert f"{found.since:%H}" == "07"
    assert all(map(has_its_risk, found.remedies))


def test_other_words_are_evidence() -> None:
    evicted = condition("Evicted", "True", "preempted by a")
    (found,) = findings(workload({**PENDING, "lastTransitionTime": ago(minutes=1)}, evicted))
    assert found.evidence == ("Evicted of Workload ml/job-train-1a in queue q: preempted by a",)


def test_a_queue_that_said_nothing() -> None:
    (found,) = findings(workload(queueName=""))
    assert found.message == "the workload waits for admission to no queue: it has not said why yet"
    assert found.evidence == ()


ADMITTED, FINISHED = condition("Admitted"), condition("Finished")
KAI = pod(schedulerName="kai-scheduler", metadata={"annotations": {"gpu-fraction": "0.5"}})
NEAR_MISSES: Mapping[str, Sequence[Object]] = {
    "admitted": [workload(condition("QuotaReserved"), ADMITTED)],
    "finished": [workload(PENDING, FINISHED)],
    "deleted": [{**workload(PENDING), "metadata": {**workload()["metadata"], "deletionTimestamp": ago()}}],
    "without GPUs": [workload(PENDING, of=pod(requests={"cpu": 8}))],
    "with pods": [workload(PENDING), pod("train-x", {GPU: 8}, owner=("Job", "train"))],
    "of a pod": [workload(PENDING, owners=[reference("Pod", "p")]), pod("p", {GPU: 8})],
    "of a group of pods": [workload(PENDING, owners=[{**reference("Pod", "p"), "controller": False}])],
    "of Kubernetes": [{**workload(PENDING), "apiVersion": "scheduling.k8s.io/v1alpha1"}],
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_no_finding(name: str) -> None:
    assert findings(JOB, *NEAR_MISSES[name]) == ()


@pytest.mark.parametrize(
    "objects",
    [
        [workload(PENDING, of=KAI)],
        [workload(PENDING, of=pod(resourceClaims=[{"name": "gpu"}]))],
        [workload(PENDING), pod("train-x", {GPU: 8}, owner=("Job", "train"), phase="Failed")],
        [{**workload(PENDING), "apiVersion": "kueue.x-k8s.io/v1beta1"}],
        [workload(PENDING), workload(PENDING, ADMITTED | {"status": "False"})],
    ],
    ids=["GPUs by annotation", "GPUs by claims", "a pod that failed", "an older version", "not admitted any more"],
)
def test_these_are_found(objects: Sequence[Object]) -> None:
    assert {str(each.object) for each in findings(JOB, *objects)} == {"Job/ml/train"}


def test_a_workload_without_an_owner_is_the_object() -> None:
    (found,) = findings(workload(PENDING, owners=[]))
    assert str(found.object) == "Workload/ml/job-train-1a"


QUEUE_FULL = "queue resource quota insufficient: insufficient nvidia.com/gpu"


def pod_group(phase: str = "Pending", **members: Any) -> Object:
    metadata = {"ownerReferences": [{**reference("Job", "train"), "uid": "uid-volcano"}]}
    spec = {"queue": "team", "minResources": {"cpu": "4", "requests.nvidia.com/gpu": "8"}, **members}
    return api_object(VOLCANO, "train-1a", "ml", metadata=metadata, spec=spec, status={"phase": phase})


def test_a_job_of_volcano_waits_for_its_queue() -> None:
    said = event(pod_group(), "Unschedulable", QUEUE_FULL, source={"component": "volcano"}, type="Normal")
    (found,) = findings(pod_group(), said)
    assert found.message == f"the workload waits for admission to queue team: {QUEUE_FULL}"
    assert found.remedies[0].command == "kubectl describe podgroups.scheduling.volcano.sh -n ml train-1a"
    assert findings(pod_group("Inqueue"), said) == findings(pod_group("Running"), said) == ()
    assert findings(pod_group(minResources={"cpu": "4"})) == ()
    assert findings(pod_group(), pod("p", {GPU: 8}, owner=("Job", "train"))) == ()


def test_malformed_objects_are_passed_over() -> None:
    assert findings(workload(PENDING, podSets=[3, {"template": 4}, {"template": {"spec": []}}])) == ()
    assert findings({**workload(), "status": [], "spec": "x"}) == ()


def claim_template(*requests: Object, name: str = "t") -> Object:
    return api_object("ResourceClaimTemplate", name, "ml", spec={"spec": {"devices": {"requests": [*requests]}}})


def exactly(**members: Any) -> Object:
    return {"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", **members}}


FIRST = {"name": "g", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.nvidia.com"}]}
OF_TEMPLATE = [{"name": "c", "resourceClaimTemplateName": "t"}]
CLAIMING = pod("p", resourceClaims=OF_TEMPLATE)
QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
SUSPENDED = api_object("Job", "train", "ml", metadata=QUEUE, spec={"suspend": True, "template": template(CLAIMING)})
GATED = pod("p", resourceClaims=OF_TEMPLATE, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
OF_JOB = workload(PENDING, of=CLAIMING)
REFUSALS: Mapping[str, tuple[str, Sequence[Object]]] = {
    "alternatives": ("firstAvailable in request g of ResourceClaimTemplate t", [OF_JOB, claim_template(FIRST)]),
    "all devices": (
        "allocationMode=All in request g of ResourceClaimTemplate t",
        [OF_JOB, claim_template(exactly(allocationMode="ExactCount"), exactly(allocationMode="All"))],
    ),
    "a claim by name": (
        "resourceClaimName own",
        [workload(PENDING, of=pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "own"}]))],
    ),
    "a Job whose Workload was not read": (
        "firstAvailable in request g of ResourceClaimTemplate t",
        [SUSPENDED, claim_template(FIRST)],
    ),
    "a pod that waits itself": (
        "firstAvailable in request g of ResourceClaimTemplate t",
        [GATED, workload(PENDING, owners=[reference("Pod", "p")], of=CLAIMING), claim_template(FIRST)],
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_claim_that_kueue_refuses_is_named(name: str) -> None:
    refused, objects = REFUSALS[name]
    (found,) = findings(*objects)
    assert (found.reason, found.message) == ("ClaimRefusedByQueue", f"Kueue refuses a claim of the pods: {refused}")
    assert found.certainty is Certainty.POSSIBLE
    assert all(map(has_its_risk, found.remedies))


def test_the_words_of_kueue_make_it_certain() -> None:
    said = condition(
        "QuotaReserved", "False", "ResourceClaimTemplate t: FirstAvailable device selection is not supported"
    )
    (found,) = findings(SUSPENDED, workload(said, of=CLAIMING), claim_template(FIRST))
    assert found.certainty is Certainty.CERTAIN
    assert found.evidence == (f"QuotaReserved of Workload ml/job-train-1a in queue q: {said['message']}",)


@pytest.mark.parametrize(
    "objects",
    [
        [OF_JOB, claim_template(exactly(count=2))],
        [OF_JOB, claim_template(exactly(allocationMode="All", adminAccess=True))],
        [OF_JOB, claim_template(FIRST, name="other")],
        [OF_JOB],
        [workload(ADMITTED, of=CLAIMING), claim_template(FIRST)],
        [
            api_object("Job", "train", "ml", metadata=QUEUE, spec={"template": template(CLAIMING)}),
            claim_template(FIRST),
        ],
        [
            api_object("Job", "train", "ml", spec={"suspend": True, "template": template(CLAIMING)}),
            claim_template(FIRST),
        ],
        [CLAIMING, claim_template(FIRST)],
    ],
)
def test_other_claims_are_not_refused(objects: Sequence[Object]) -> None:
    assert "ClaimRefusedByQueue" not in [each.reason for each in findings(*objects)]
