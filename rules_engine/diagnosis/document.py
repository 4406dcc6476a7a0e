"""Diagnoses as JSON; schemas/output/doctor.json describes them."""

from collections.abc import Sequence
from typing import Any

from rules_engine.diagnosis.values import Diagnosis, FindingGroup
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.report.documents import field_members, json_value


def diagnosis_document(diagnosis: Diagnosis, problems: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the document of `doctor --output json`. `problems`: those of its input, as members."""
    overview, scope = diagnosis.overview, diagnosis.scope
    return {
        "time": json_value(diagnosis.now),
        "scope": {
            "pod": None if scope.pod is None else f"{scope.pod.namespace}/{scope.pod.name}",
            "node": scope.node or None,
            "namespace": scope.namespace or None,
            "sinceSeconds": int(scope.since.total_seconds()),
        },
        **field_members(diagnosis, "rules objects"),
        "notRead": [field_members(absent, "objects unknown") for absent in diagnosis.absent],
        "nodes": [
            {
                **field_members(node, "name product ready cordoned"),
                "resources": {
                    resource: field_members(amounts, "capacity allocatable allocated free")
                    for resource, amounts in node.resources.items()
                },
            }
            for node in overview.nodes
        ],
        "devicePlugins": [
            {
                **_object_members(plugin.name),
                **field_members(plugin, "desired ready"),
                "unready": [
                    {**_object_members(pod.name), **field_members(pod, "node status")} for pod in plugin.unready
                ],
            }
            for plugin in overview.device_plugins
        ],
        "pods": [
            {**_object_members(pod.name), **field_members(pod, "node status amounts since")} for pod in overview.pods
        ],
        "pendingPods": [
            {
                "objects": json_value(pending.pods),
                **field_members(pending, "since amounts recomputed recorded agreement note evaluated"),
                "finding": field_members(pending.finding, "reason certainty message"),
            }
            for pending in overview.pending
        ],
        "errors": [field_members(error, "objects reason message count at") for error in overview.errors],
        "moreErrors": overview.more_errors,
        "findings": [_finding_members(group) for group in diagnosis.findings],
        "notEvaluated": [
            {"diagnostic": each.source, **field_members(each, "why objects first")} for each in diagnosis.not_evaluated
        ],
        "problems": problems,
    }


def _object_members(name: ObjectName) -> dict[str, Any]:
    return {"object": str(name)}


def _finding_members(group: FindingGroup) -> dict[str, Any]:
    finding = group.finding
    return {
        **field_members(finding, "reason severity certainty"),
        "objects": json_value(group.objects),
        **field_members(finding, "message cause"),
        "effects": [_finding_members(FindingGroup(finding=each, objects=group.objects)) for each in group.effects],
        "evidence": json_value(finding.evidence),
        "remedies": [
            {"text": remedy.text, "command": remedy.command or None, "risk": remedy.risk.value}
            for remedy in finding.remedies
        ],
        "onHost": finding.on_host,
        "diagnostic": finding.source or None,
        "source": json_value(finding.location),
    }
