"""`gpu-rules explain`: the decisions for pods, with their traces."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from rules_engine.cluster.creation.plugins import NOTHING_READ, ApiServer
from rules_engine.cluster.read.manifests import Manifest
from rules_engine.language.yaml.text import dump_yaml
from rules_engine.model.json.lenient import Object, as_mapping, object_items, text_member
from rules_engine.model.json.output import Output
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_containers, with_default_requests, with_generated_name
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE
from rules_engine.model.kubernetes.removed_values import POD, without_fields
from rules_engine.model.problems.problem import Problem, unknown_pods
from rules_engine.model.problems.source import Location
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.rules.decision import Step
from rules_engine.model.rules.logged_decision import LoggedDecision
from rules_engine.report.answer import Answer
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.admission import Admission, admit_pod
from rules_engine.rules.evaluation.rule_reads import RuleReads, removed_members
from rules_engine.rules.sources.rule_files import has_errors
from rules_engine.rules.sources.rule_sources import RuleSource


class NamespaceError(ValueError):
    """A requested namespace that differs from the manifest's; kubectl rejects that as well."""


class Verdict(StrEnum):
    """The outcome for a pod. Allowed: unchanged or changed; Refused: by the API server itself.

    Unknown: a rule reads a value that was removed from it, or what was not read of the cluster.
    """

    ALLOWED = "Allowed"
    DENIED = "Denied"
    REFUSED = "Refused"
    UNKNOWN = "Unknown"


class UnknownRule(Output, frozen=True, kw_only=True):
    """A rule that may decide otherwise, since it reads what the input lacks."""

    rule: Annotated[str, Meta(description="Kind and name.")]
    reads: Annotated[tuple[str, ...], Meta(description="Removed values, such as object.spec.containers.args; cluster.")]


class ExplainedPod(Output, frozen=True, kw_only=True):
    """The decisions for one pod of a manifest."""

    kind: Annotated[str, Meta(description="Of the manifest: Pod, or a workload whose pod it is.")]
    name: str
    namespace: str
    source: Location
    verdict: Verdict
    message: Annotated[str, Meta(description='Of the denial or refusal; "" if the pod is allowed.')]
    warnings: Annotated[tuple[str, ...], Meta(description="For the user who creates the pod.")]
    unknown: tuple[UnknownRule, ...]
    not_read: Annotated[
        tuple[str, ...], Meta(description="Objects that the API server would read for this pod, and were not read.")
    ]
    mutation: Annotated[LoggedDecision, Meta(description="Of the mutating rules.")]
    validation: Annotated[
        LoggedDecision | None, Meta(description="Of the validating rules. Null: the mutation denied the pod.")
    ]
    pod: Annotated[dict[str, Any], Meta(description="The pod after the mutation, without values that may be secret.")]


class Explained(Answer, frozen=True, kw_only=True):
    """The decisions for the pods of manifests."""

    rules: Annotated[tuple[str, ...], Meta(description="Sources of the rules, as given; empty without rules.")]
    cluster: Annotated[str, Meta(description="The cluster, as given.")]
    verdict: Annotated[
        Verdict, Meta(description="Denied or Refused if a pod is; else Unknown if one is, or if others may exist.")
    ]
    pods: tuple[ExplainedPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The admission of one pod of a manifest, with the answer about it."""

    manifest: Manifest
    request: AdmissionRequest
    admission: Admission
    answer: ExplainedPod

    @property
    def title(self) -> str:
        return self.manifest.title(self.request.namespace)

    @property
    def written(self) -> Json:
        """The pod as its author wrote it, with its names and default requests."""
        return _written_pod(self.manifest, self.admission.request.object)

    @property
    def changed(self) -> Json:
        """The pod after the mutation, without what the cluster added to it."""
        return _without_added(self.admission.result, self.written, self.admission.request.object)

    @property
    def diff(self) -> tuple[str, ...]:
        """The mutation's changes of the pod's YAML, as lines of a unified diff; empty without changes.

        Defaults that the API server sets before it calls webhooks are not changes.
        """
        before, after = (dump_yaml(pod).splitlines() for pod in (_shown(self.written), self.answer.pod))
        return tuple(unified_diff(before, after, "submitted", "admitted", lineterm=""))


def explain(
    rule_set: RuleSet,
    manifest: Manifest,
    cluster: Cluster | ClusterObjects,
    *,
    namespace: str = "",
    operation: str = "CREATE",
    dry_run: bool = False,
) -> Explanation:
    """Explain the decisions for one pod. `namespace`: of the request; default: the manifest's, else `default`.

    Raises NamespaceError.

    >>> from rules_engine import explain, load_cluster, load_manifests, load_rules
    >>> rules, cluster = load_rules(["set:gpu-allocation"]), load_cluster(["rules_engine/inventories/two-workers.yaml"])
    >>> [pod] = load_manifests([{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}])
    >>> explain(rules, pod, cluster).answer.verdict
    <Verdict.ALLOWED: 'Allowed'>
    """
    request = mutation_request(manifest, namespace=namespace, operation=operation, dry_run=dry_run)
    objects = cluster if isinstance(cluster, ClusterObjects) else NOTHING_READ
    # The API server's own plugins change pods only when they are created.
    api_server = ApiServer(objects) if operation == "CREATE" else None
    admission = admit_pod(rule_set, request, cluster, api_server)
    removed = removed_members(manifest.pod)
    lacks = removed or any(step.cluster_unknown for step in admission.trace)
    unknown = RuleReads(rule_set).dependent_rules(admission.trace, removed) if lacks else {}
    verdict = Verdict.UNKNOWN if unknown else Verdict.ALLOWED if admission.allowed else Verdict.DENIED
    if admission.refusal and all(decision.allowed for decision in admission.decisions):
        verdict = Verdict.REFUSED
    validation = admission.validation
    answer = ExplainedPod(
        kind=manifest.kind,
        name=manifest.name,
        namespace=request.namespace,
        source=manifest.location,
        verdict=verdict,
        message=admission.message,
        warnings=admission.warnings,
        unknown=tuple(UnknownRule(rule=rule, reads=tuple(names)) for rule, names in unknown.items()),
        mutation=LoggedDecision.of(admission.mutation),
        validation=None if validation is None else LoggedDecision.of(validation),
        pod=_shown(
            _without_added(admission.result, _written_pod(manifest, request.object), admission.request.object),
            admission.trace,
        ),
        not_read=admission.unknown,
    )
    return Explanation(manifest=manifest, request=request, admission=admission, answer=answer)


def join_pods(
    rules: Sequence[RuleSource], cluster: str, pods: Sequence[ExplainedPod], problems: Sequence[Problem]
) -> Explained:
    """Return the answer about all pods."""
    others = has_errors(problems) or unknown_pods(problems)
    verdicts = {pod.verdict for pod in pods} | ({Verdict.UNKNOWN} if others else set())
    worst = next(
        (each for each in (Verdict.DENIED, Verdict.REFUSED, Verdict.UNKNOWN) if each in verdicts), Verdict.ALLOWED
    )
    return Explained(
        problems=tuple(problems), rules=tuple(map(str, rules)), cluster=cluster, verdict=worst, pods=tuple(pods)
    )


def mutation_request(
    manifest: Manifest, *, namespace: str = "", operation: str = "CREATE", dry_run: bool = False
) -> AdmissionRequest:
    """Return the request for /mutate with this pod; `namespace` is as for `explain`. Raises NamespaceError.

    An UPDATE changes nothing: the old pod equals the new one, and has a name.
    """
    if namespace and manifest.namespace not in ("", namespace):
        name = f"{manifest.kind}/{manifest.name}"
        raise NamespaceError(f"{name} has namespace {manifest.namespace}, not {namespace}")
    request_namespace = namespace or manifest.namespace or DEFAULT_NAMESPACE
    pod: Json = manifest.submitted()
    old: Json = None
    if operation == "UPDATE":
        pod = old = with_generated_name(pod)
    return pod_request(pod, namespace=request_namespace, operation=operation, dry_run=dry_run, old_pod=old)


def _written_pod(manifest: Manifest, created: Json) -> Json:
    """Return the pod of a manifest as its author wrote it, with the names and default requests of the created one."""
    pod = with_default_requests(manifest.pod)
    own, metadata = as_mapping(pod.get("metadata")), as_mapping(as_mapping(created).get("metadata"))
    names = {name: metadata[name] for name in ("name", "generateName") if name in metadata}
    return {**pod, "metadata": {**own, **names}}


def _shown(pod: Json, trace: Iterable[Step] = ()) -> dict[str, Any]:
    """Return a pod without the values that may be secret, but with those that rules have written."""
    shown: dict[str, Any] = {**as_mapping(without_fields(pod, POD, {}))}
    written = {
        (member.container, text_member(value, "name")): value
        for step in trace
        for member in step.members
        if step.decides and member.member.startswith("env.") and "value" in (value := as_mapping(member.value))
    }
    if not written:
        return shown

    def with_values(_member: str, container: Object) -> Json:
        name = text_member(container, "name")
        env: list[Json] = [
            {**each, **written.get((name, text_member(each, "name")), {})}
            for each in object_items(container.get("env"))
        ]
        return {**container, "env": env} if env else {**container}

    return {**shown, "spec": with_containers(as_mapping(shown.get("spec")), with_values)}


def _without_added(value: Json, submitted: Json, created: Json) -> Json:
    """Return a value without the members and items of the created one that the submitted one lacks."""
    if isinstance(value, dict) and isinstance(submitted, dict) and isinstance(created, dict):
        return {
            name: _without_added(member, submitted.get(name, {} if isinstance(member, dict) else []), created.get(name))
            for name, member in value.items()
            if name in submitted or member != created.get(name)
        }
    if isinstance(value, list) and isinstance(submitted, list) and isinstance(created, list):
        added, count = created[len(submitted) :], len(submitted)
        kept = [_without_added(*items) for items in zip(value, submitted, created, strict=False)]
        return [*kept, *(item for item in value[count:] if item not in added)]
    return value
