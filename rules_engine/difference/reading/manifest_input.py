"""Pods that manifests create."""

from rules_engine.difference.values import Submitted, Workload
from rules_engine.documents.workloads import pod_count
from rules_engine.loading.kubernetes.manifests import Manifest
from rules_engine.model.problems.excerpt import visible
from rules_engine.model.problems.problems import Problems
from rules_engine.model.rules.admission import pod_request


def submitted_by(manifest: Manifest, default_namespace: str, cluster_name: str, problems: Problems) -> Submitted:
    """Return the pods of a manifest, as its controller submits them.

    `default_namespace`: that of an object that names none. A workload that is scaled down counts as one pod, else its
    changes would not count. A problem is a number of pods that is none.
    """
    namespace = manifest.namespace or default_namespace
    workload = Workload(
        cluster=cluster_name, namespace=visible(namespace), kind=visible(manifest.kind), name=visible(manifest.name)
    )
    request = pod_request(manifest.submitted(), namespace=namespace)
    return Submitted(workload=workload, request=request, count=max(1, pod_count(manifest, problems)))
