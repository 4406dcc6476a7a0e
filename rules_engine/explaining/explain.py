"""`gpu-rules explain`: the decisions for pods, with their traces."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from rules_engine.documents.clusters import ClusterReading
from rules_engine.documents.references import Sources
from rules_engine.evaluation import RuleSet
from rules_engine.evaluation.admission import Admission, admit_pod
from rules_engine.evaluation.rule_reads import RuleReads, removed_members
from rules_engine.loading import Manifest
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod_defaults import with_generated_name
from rules_engine.model.kubernetes.removed_values import POD, without_fields
from rules_engine.model.problems.problem import Problem
from rules_engine.model.rules.admission import AdmissionRequest, pod_request
from rules_engine.model.rules.rule import RuleId
from rules_engine.report.documents import location_members
from rules_engine.sources.rule_sources import RuleSource, read_sources
from rules_engine.sources.yaml_text import dump_yaml

DEFAULT_NAMESPACE = "default"
"""Namespace of objects that have none, as in kubectl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Rules and a cluster for decisions, with the names of their sources; unusable if `problems` has errors."""

    rules: tuple[str, ...]
    cluster_name: str
    rule_set: RuleSet
    cluster: Cluster
    problems: tuple[Problem, ...]
    sources: Sources


class NamespaceError(ValueError):
    """A requested namespace that differs from the manifest's; kubectl rejects that as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The decisions for one pod of a manifest.

    `unknown`: rules that may decide otherwise, since they read values that were removed from the pod, with the names.
    """

    manifest: Manifest
    request: AdmissionRequest
    admission: Admission
    unknown: Mapping[RuleId, Collection[str]]

    @property
    def namespace(self) -> str:
        return self.request.namespace

    @property
    def title(self) -> str:
        return self.manifest.title(self.namespace)

    @property
    def diff(self) -> tuple[str, ...]:
        """The mutation's changes of the pod's YAML, as lines of a unified diff; empty without changes.

        Defaults that the API server sets before it calls webhooks are not changes.
        """
        before, after = (_yaml_lines(_shown(pod)) for pod in (self.request.object, self.admission.result))
        return tuple(unified_diff(before, after, "submitted", "admitted", lineterm=""))

    def to_json(self) -> dict[str, Json]:
        """Return the explanation for `--output json`: the outcome and both decisions."""
        validation = self.admission.validation
        return {
            "kind": self.manifest.kind,
            "name": self.manifest.name,
            "namespace": self.namespace,
            "source": location_members(self.manifest.location),
            "allowed": self.admission.allowed,
            "message": self.admission.message,
            "warnings": list(self.admission.warnings),
            "unknown": [{"rule": str(rule), "reads": [*names]} for rule, names in self.unknown.items()],
            "mutation": self.admission.mutation.to_json(location_members),
            "validation": validation.to_json(location_members) if validation is not None else None,
            "pod": _shown(self.admission.result),
        }


def read_material(rules: Sequence[RuleSource], cluster: ClusterReading, cluster_name: str) -> Material:
    """Read rules, for decisions on a cluster."""
    files = read_sources(rules)
    return Material(
        rules=tuple(map(str, rules)),
        cluster_name=cluster_name,
        rule_set=files.rule_set,
        cluster=cluster.cluster or Cluster(),
        problems=(*files.problems, *cluster.problems),
        sources={**files.loaded.sources, **cluster.sources},
    )


def explain_pod(
    material: Material, manifest: Manifest, *, namespace: str = "", operation: str = "CREATE", dry_run: bool = False
) -> Explanation:
    """Explain the decisions for one pod. `namespace`: of the request; default: the manifest's, else `default`.

    Raises NamespaceError.
    """
    request = mutation_request(manifest, namespace=namespace, operation=operation, dry_run=dry_run)
    admission = admit_pod(material.rule_set, request, material.cluster)
    removed = removed_members(manifest.pod)
    unknown = RuleReads(material.rule_set).dependent_rules(admission.trace, removed) if removed else {}
    return Explanation(manifest=manifest, request=request, admission=admission, unknown=unknown)


def mutation_request(
    manifest: Manifest, *, namespace: str = "", operation: str = "CREATE", dry_run: bool = False
) -> AdmissionRequest:
    """Return the request for /mutate with this pod; `namespace` is as for `explain_pod`. Raises NamespaceError.

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


def _shown(pod: Json) -> Json:
    """Return a pod without the values that may be secret."""
    return without_fields(pod, POD, {})


def _yaml_lines(pod: Json) -> list[str]:
    return dump_yaml(pod).splitlines() if isinstance(pod, dict) else []
