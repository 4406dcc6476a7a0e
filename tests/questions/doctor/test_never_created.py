"""Workloads whose pods were never created: a recorded cluster for each reason, and near misses."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity
from rules_engine.questions.doctor.never_created import find_never_created
from rules_engine.questions.doctor.reasons import NeverCreatedReason
from tests.support.api import GPU, NOW, Object, ago, api_object, cluster, event, pod
from tests.support.evaluation import asks, check, compiled, request, validation
from tests.support.remedies import has_its_risk

SINCE = NOW - timedelta(hours=1)

EXCEEDED = (
    'Error creating: pods "train-x7k2p" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=4, '
    "used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
)
UNSPECIFIED = (
    'Error creating: pods "train-x7k2p" is forbidden: failed quota: compute: must specify limits.cpu for: main'
)
DENIED_BY_US = (
    'Error creating: admission webhook "validate.gpurules.io" denied the request: Validation/rdma-needs-ipc-lock, '
    "Validation/team: the container main needs IPC_LOCK; Validation/label: a label is missing"
)
REFUSED_BY_US = (
    'Error creating: admission webhook "mutate.gpurules.io" denied the request: the pod is malformed: '
    "/spec/containers/0/resources/limits/nvidia.com~1gpu: not a whole number"
)
DENIED = 'Error creating: admission webhook "validation.gatekeeper.sh" denied the request: [limits] no cpu limit'
UNEXPLAINED = 'Error creating: admission webhook "silent.example.com" denied the request without explanation'
UNREACHABLE = (
    'Error creating: Internal error occurred: failed calling webhook "mutate.gpurules.io": failed to call webhook: '
    'Post "https://gpu-rules.gpu-rules.svc:443/mutate?timeout=10s": dial tcp 10.96.0.7:443: connect: connection refused'
)
FAILED_SILENTLY = 'Error creating: failed calling webhook "silent.example.com"; no further details available'
FORBIDDEN = 'Error creating: pods "train-x7k2p" is forbidden: '
POLICY = f"{FORBIDDEN}ValidatingAdmissionPolicy 'teams' with binding 'teams' denied request: the label team is missing"


def template(requests: Mapping[str, int]) -> Object:
    return {"spec": pod(requests=requests, initContainers=[])["spec"]}


def job(name: str = "train", requests: Mapping[str, int] | None = None, **fields: Any) -> Object:
    """Return a Job that requests a GPU if not told otherwise; `status` is its status, the rest its spec."""
    status = fields.pop("status", {})
    spec = {"template": template({GPU: 1} if requests is None else requests), **fields}
    return api_object("Job", name, "ml", spec=spec, status=status)


def replicated(kind: str, *, replicas: int = 2, created: int = 0, **status: Any) -> Object:
    spec = {"replicas": replicas, "template": template({GPU: 1})}
    return api_object(kind, "serve", "ml", spec=spec, status={"replicas": created, **status})


def findings_of(*objects: Object, absent: Sequence[str] = ()) -> tuple[Finding, ...]:
    return find_never_created(cluster(*objects, absent=absent), SINCE)


def only_finding(*objects: Object, absent: Sequence[str] = ()) -> Finding:
    (finding,) = findings_of(*objects, absent=absent)
    return finding


REASONS = {
    "a quota is exceeded": (EXCEEDED, NeverCreatedReason.QUOTA, "quota gpus is exceeded"),
    "a quota needs amounts": (
        UNSPECIFIED,
        NeverCreatedReason.QUOTA,
        "quota compute requires amounts that the pods do not set",
    ),
    "rules deny": (
        DENIED_BY_US,
        NeverCreatedReason.DENIED_BY_RULE,
        "denied by Validation/rdma-needs-ipc-lock, Validation/team and Validation/label of gpu-rules",
    ),
    "gpu-rules refuses a malformed pod": (
        REFUSED_BY_US,
        NeverCreatedReason.DENIED_BY_WEBHOOK,
        "denied by the webhook mutate.gpurules.io",
    ),
    "another webhook denies": (
        DENIED,
        NeverCreatedReason.DENIED_BY_WEBHOOK,
        "denied by the webhook validation.gatekeeper.sh",
    ),
    "a webhook denies without explanation": (
        UNEXPLAINED,
        NeverCreatedReason.DENIED_BY_WEBHOOK,
        "denied by the webhook silent.example.com",
    ),
    "a webhook cannot be called": (
        UNREACHABLE,
        NeverCreatedReason.WEBHOOK_FAILED,
        "the webhook mutate.gpurules.io could not be called",
    ),
    "a webhook fails without details": (
        FAILED_SILENTLY,
        NeverCreatedReason.WEBHOOK_FAILED,
        "the webhook silent.example.com could not be called",
    ),
    "a policy denies": (POLICY, NeverCreatedReason.OTHER, "the API server refused them"),
    "no PriorityClass": (
        f"{FORBIDDEN}no PriorityClass with name high was found",
        NeverCreatedReason.OTHER,
        "PriorityClass high does not exist",
    ),
    "no RuntimeClass": (
        f'{FORBIDDEN}pod rejected: RuntimeClass "nvidia" not found',
        NeverCreatedReason.OTHER,
        'RuntimeClass "nvidia" does not exist',
    ),
    "no ServiceAccount": (
        f'{FORBIDDEN}error looking up service account ml/trainer: serviceaccount "trainer" not found',
        NeverCreatedReason.OTHER,
        'serviceaccount "trainer" does not exist',
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_why_pods_were_not_created(name: str) -> None:
    message, reason, said = REASONS[name]
    finding = only_finding(job(), event(job(), "FailedCreate", message))
    assert finding.reason == reason
    assert finding.message == f"pods were not created: {said}"
    assert finding.severity is FindingSeverity.ERROR
    assert finding.certainty is Certainty.CERTAIN
    assert str(finding.object) == "Job/ml/train"
    assert finding.remedies
    assert all(map(has_its_risk, finding.remedies))


def test_every_reason_has_a_recorded_cluster() -> None:
    of_queues = {NeverCreatedReason.NOT_ADMITTED, NeverCreatedReason.CLAIM_REFUSED}
    assert {reason for _, reason, _ in REASONS.values()} == set(NeverCreatedReason) - of_queues


def test_a_denial_of_our_own_is_read_as_the_server_writes_it() -> None:
    rules = compiled(
        validation(check("false", "no GPUs here"), name="one"), validation(check("false", "no GPUs here"), name="two")
    )
    status = rules.validate(request(asks({GPU: 1})), Cluster()).status
    assert status is not None
    message = f'admission webhook "{Endpoint.VALIDATE.webhook}" denied the request: {status.message}'
    finding = only_finding(job(), event(job(), "FailedCreate", f"Error creating: {message}"))
    assert finding.message == "pods were not created: denied by Validation/one and Validation/two of gpu-rules"
    assert finding.evidence == ("Validation/one, Validation/two: no GPUs here",)
    assert finding.remedies[1].command == "kubectl get job -n ml train -o yaml | gpu-rules explain -f - --rules rules"


def test_names_like_rules_in_the_message_of_another_webhook_are_no_rules() -> None:
    message = DENIED_BY_US.replace("validate.gpurules.io", "policy.example.com")
    assert only_finding(job(), event(job(), "FailedCreate", message)).reason == NeverCreatedReason.DENIED_BY_WEBHOOK


def test_the_state_of_the_quota_is_evidence() -> None:
    hard = {"requests.nvidia.com/gpu": "8", "requests.cpu": "100"}
    used = {"requests.nvidia.com/gpu": "7", "requests.cpu": "3"}
    quota = api_object("ResourceQuota", "gpus", "ml", status={"hard": hard, "used": used})
    finding = only_finding(job(), quota, event(job(), "FailedCreate", EXCEEDED))
    assert finding.evidence == (
        "requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8",
        "quota gpus now: requests.nvidia.com/gpu 7 of 8",
    )
    assert finding.remedies[0].command == "kubectl describe resourcequota -n ml gpus"


def test_a_stateful_set_words_its_failures_otherwise() -> None:
    made = replicated("StatefulSet")
    failed = EXCEEDED.replace("Error creating:", "create Pod serve-0 in StatefulSet serve failed error:")
    finding = only_finding(made, event(made, "FailedCreate", failed))
    assert finding.message == "pods were not created: quota gpus is exceeded"


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_replicas_that_lack_pods_are_found(kind: str) -> None:
    made = replicated(kind, created=1)
    assert str(only_finding(made, event(made, "FailedCreate", EXCEEDED)).object) == f"{kind}/ml/serve"


def test_the_condition_of_a_replica_set_outlasts_its_events() -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": DENIED[16:]}
    progressing = {"type": "Progressing", "status": "True", "reason": "FailedCreate", "message": ""}
    made = replicated("ReplicaSet", conditions=[progressing, condition])
    assert only_finding(made).reason == NeverCreatedReason.DENIED_BY_WEBHOOK
    assert only_finding(made, event(made, "FailedCreate", EXCEEDED)).reason == NeverCreatedReason.DENIED_BY_WEBHOOK


def test_the_last_failure_counts() -> None:
    old = event(job(), "FailedCreate", DENIED, last=ago(minutes=30))
    new = event(job(), "FailedCreate", EXCEEDED, last=ago(minutes=1))
    unknown = event(job(), "FailedCreate", DENIED, last="unknown")
    assert {only_finding(job(), *events).reason for events in ((old, new), (new, old, unknown))} == {
        NeverCreatedReason.QUOTA
    }


@pytest.mark.parametrize(
    "objects",
    [
        [job(), event(job(), "SuccessfulCreate", "Created pod: train-x7k2p")],
        [job(), event(job(), "FailedCreate", EXCEEDED, last=ago(hours=2))],
        [job(status={"active": 1}), event(job(), "FailedCreate", EXCEEDED)],
        [
            job(parallelism=4, completions=4, status={"succeeded": 3, "active": 1}),
            event(job(), "FailedCreate", EXCEEDED),
        ],
        [job(status={"conditions": [{"type": "Failed", "status": "True"}]}), event(job(), "FailedCreate", EXCEEDED)],
        [job(status={"conditions": [{"type": "Suspended", "status": "True"}]}), event(job(), "FailedCreate", EXCEEDED)],
        [event(job(), "FailedCreate", EXCEEDED)],
        [replicated("StatefulSet", created=2), event(replicated("StatefulSet"), "FailedCreate", EXCEEDED)],
        [replicated("ReplicaSet", replicas=0), event(replicated("ReplicaSet"), "FailedCreate", EXCEEDED)],
        [job(requests={"cpu": 1}), event(job(), "FailedCreate", DENIED)],
        [event(api_object("CronJob", "nightly", "ml"), "FailedCreate", EXCEEDED.replace("pods", "jobs.batch"))],
        [job(), event(pod(), "FailedCreate", EXCEEDED)],
        [event(api_object("DaemonSet", "plugin", "ml"), "FailedCreate", EXCEEDED)],
        [event(api_object("", "", ""), "FailedCreate", EXCEEDED)],
    ],
    ids=[
        "another event",
        "an old event",
        "the pod exists by now",
        "the last of four pods exists by now",
        "the Job has failed",
        "the Job is suspended",
        "the Job has been deleted",
        "the replicas exist by now",
        "no replicas are wanted",
        "no GPUs are concerned",
        "another kind",
        "a pod",
        "a kind that is not diagnosed",
        "no object",
    ],
)
def test_near_misses(objects: list[Object]) -> None:
    assert findings_of(*objects) == ()


def owned(owner: Object, created: str) -> Object:
    metadata = owner["metadata"]
    return pod(
        f"{metadata['name']}-0", owner=(owner["kind"], metadata["name"]), metadata={"creationTimestamp": created}
    )


@pytest.mark.parametrize(("created", "count"), [(ago(minutes=9), 0), (ago(minutes=11), 1), ("", 1)])
def test_a_failure_is_over_when_a_pod_was_created_after_it(created: str, count: int) -> None:
    # The StatefulSet creates its second pod when the first one is ready.
    made = replicated("StatefulSet", created=1)
    assert (
        len(findings_of(made, event(made, "FailedCreate", EXCEEDED, last=ago(minutes=10)), owned(made, created)))
        == count
    )


def test_a_workload_that_is_being_deleted_is_left_out() -> None:
    made = job()
    made["metadata"]["deletionTimestamp"] = ago(minutes=1)
    assert findings_of(made, event(made, "FailedCreate", EXCEEDED)) == ()


def test_failures_of_an_earlier_workload_of_the_same_name_do_not_count() -> None:
    earlier, now = job(), job()
    earlier["metadata"]["uid"], now["metadata"]["uid"] = "1", "2"
    failure = event(earlier, "FailedCreate", EXCEEDED)
    assert findings_of(now, failure) == ()
    assert only_finding(earlier, failure).reason is NeverCreatedReason.QUOTA


def test_a_job_that_lacks_one_of_its_pods_is_found() -> None:
    made = job(parallelism=4, status={"active": 3})
    assert only_finding(made, event(made, "FailedCreate", EXCEEDED)).reason == NeverCreatedReason.QUOTA


@pytest.mark.parametrize("message", [EXCEEDED, DENIED_BY_US, UNREACHABLE])
def test_quotas_of_gpus_and_our_webhooks_concern_every_workload(message: str) -> None:
    made = job(requests={"cpu": 1})
    assert len(findings_of(made, event(made, "FailedCreate", message))) == 1


def test_workloads_that_were_not_read_are_possible() -> None:
    finding = only_finding(event(job(), "FailedCreate", EXCEEDED), absent=["Job"])
    assert finding.certainty is Certainty.POSSIBLE
    assert finding.evidence[-1] == "jobs were not read: the workload may have its pods by now"
    assert findings_of(event(job(), "FailedCreate", DENIED), absent=["Job"]) == ()


AMOUNTS = "requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8"
QUOTA = f"exceeded quota: gpus, {AMOUNTS}"
OWN_DENIAL = DENIED_BY_US.removeprefix("Error creating: ")
OPERATORS = {
    # kubeflow/training-operator release-1.9: pkg/controller.v1/control/pod_control.go
    "PyTorchJob": ("FailedCreatePod", f'Error creating: pods "w-worker-0" is forbidden: {QUOTA}'),
    # kubeflow/mpi-operator v0.8: pkg/controller/mpi_job_controller.go
    "MPIJob": ("MPIJobFailed", f'worker pod created failed: pods "w-worker-0" is forbidden: {QUOTA}'),
    # ray-project/kuberay, August 2026: ray-operator/controllers/ray/raycluster_controller.go
    "RayCluster": (
        "FailedToCreateWorkerPod",
        f'Failed to create worker Pod for the cluster ml/w, pods "w-worker-x" is forbidden: {QUOTA}',
    ),
}
VOLCANO = (
    'Error creating pods: [failed to create pod w-0, err: &errors.StatusError{ErrStatus:v1.Status{TypeMeta:{Kind:"", '
    f'APIVersion:""}}, Status:"Failure", Message:"pods \\"w-0\\" is forbidden: {QUOTA}", Reason:"Forbidden"}}}}]'
)


class TestKindsThatAreNotRead:
    """Pods of other workloads, whose Events have other reasons and texts around the message of the API server."""

    @pytest.mark.parametrize("kind", OPERATORS)
    def test_a_quota_is_found_in_the_event_of_an_operator(self, kind: str) -> None:
        workload = api_object(kind, "w", "ml")
        finding = only_finding(event(workload, *OPERATORS[kind]))
        assert (finding.reason, str(finding.object)) == (NeverCreatedReason.QUOTA, f"{kind}/ml/w")
        assert finding.certainty is Certainty.POSSIBLE
        assert finding.evidence == (
            AMOUNTS,
            f"objects of the kind {kind} were not read: the workload may have its pods by now",
        )

    def test_a_job_of_volcano_is_not_a_job_that_was_deleted(self) -> None:
        failure = event(api_object("Job", "w", "ml"), "FailedCreate", VOLCANO)
        assert findings_of(failure) == ()
        failure["involvedObject"]["apiVersion"] = "batch.volcano.sh/v1alpha1"
        finding = only_finding(failure)
        assert finding.evidence[0] == AMOUNTS
        assert finding.certainty is Certainty.POSSIBLE

    @pytest.mark.parametrize(
        ("reason", "around"),
        [
            ("FailedCreatePod", "Error creating: "),
            ("FailedToCreateHeadPod", "Failed to create head Pod ml/w-head, "),
            ("MPIJobFailed", "worker pod created failed: "),
        ],
    )
    @pytest.mark.parametrize("message", [OWN_DENIAL, UNREACHABLE.removeprefix("Error creating: ")])
    def test_a_refusal_by_a_webhook_of_ours_is_found(self, reason: str, around: str, message: str) -> None:
        finding = only_finding(event(api_object("RayCluster", "w", "ml"), reason, around + message))
        assert finding.reason in (NeverCreatedReason.DENIED_BY_RULE, NeverCreatedReason.WEBHOOK_FAILED)

    @pytest.mark.parametrize(
        ("kind", "reason", "message"),
        [
            (
                "RayCluster",
                "FailedToCreatePVC",
                f'Failed to create PVC ml/w, persistentvolumeclaims "w" is forbidden: {QUOTA}',
            ),
            ("JobSet", "JobCreationFailed", f'jobs.batch "w-0" is forbidden: {QUOTA}'),
            ("JobSet", "JobCreationFailed", OWN_DENIAL),
            ("LeaderWorkerSet", "FailedCreate", f"Failed to create leader statefulset w: {OWN_DENIAL}"),
            ("MPIJob", "MPIJobFailed", f'launcher pod created failed: jobs.batch "w-launcher" is forbidden: {QUOTA}'),
            ("PyTorchJob", "FailedCreateService", f"Error creating: {OWN_DENIAL}"),
            ("PyTorchJob", "FailedCreatePodGroup", f"Error creating: {OWN_DENIAL}"),
            ("Foo", "Failed", f'pods "{GPU}" is forbidden: User "a" cannot delete resource "pods"'),
            (
                "PyTorchJob",
                "FailedCreatePod",
                'Error creating: pods "w-0" is forbidden: exceeded quota: cpus, requested: cpu=1',
            ),
            ("PersistentVolumeClaim", "Failed", EXCEEDED),
        ],
    )
    def test_what_is_refused_may_be_another_object(self, kind: str, reason: str, message: str) -> None:
        assert findings_of(event(api_object(kind, "w", "ml"), reason, message)) == ()

    @pytest.mark.parametrize(("created", "count"), [(ago(minutes=9), 0), (ago(minutes=11), 1)])
    def test_a_pod_that_was_created_since_ends_it(self, created: str, count: int) -> None:
        workload = api_object("PyTorchJob", "w", "ml")
        failure = event(workload, *OPERATORS["PyTorchJob"], last=ago(minutes=10))
        assert len(findings_of(failure, owned(workload, created))) == count

    def test_the_pods_that_exist_show_that_a_workload_has_gpus(self) -> None:
        workload = api_object("PyTorchJob", "w", "ml")
        failure = event(workload, "FailedCreatePod", EXCEEDED.replace("nvidia.com/gpu", "cpu"))
        master = pod("w-master-0", {GPU: 1}, owner=("PyTorchJob", "w"))
        assert findings_of(failure) == ()
        assert only_finding(failure, master).reason == NeverCreatedReason.QUOTA

    def test_an_old_event_does_not_count(self) -> None:
        workload = api_object("PyTorchJob", "w", "ml")
        assert findings_of(event(workload, *OPERATORS["PyTorchJob"], last=ago(hours=2))) == ()


def test_values_that_the_api_server_refuses_are_not_quoted() -> None:
    message = (
        'Error creating: Pod "train" is invalid: spec.containers[0].env[0].value: Invalid value: "hunter\\"2": too '
        "short, spec.containers[0].env[1].name: Unsupported value: 7: no name"
    )
    (line,) = only_finding(job(), event(job(), "FailedCreate", message)).evidence
    assert "hunter" not in line
    assert "2" not in line.replace("[0]", "")
    assert "Invalid value: too short" in line
    assert "Unsupported value: no name" in line


def test_a_long_message_is_cut() -> None:
    (line,) = only_finding(job(), event(job(), "FailedCreate", "Error creating: " + "x " * 100_000)).evidence
    assert len(line) <= 1_001
