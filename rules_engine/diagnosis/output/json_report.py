"""Reports as JSON; schemas/output/doctor.json describes them."""

from collections.abc import Iterable
from datetime import datetime

from rules_engine.diagnosis.report import (
    DevicePlugin,
    FindingGroup,
    GpuNode,
    GpuPod,
    PendingPod,
    RecentError,
    Report,
)
from rules_engine.diagnosis.scope import Scope
from rules_engine.diagnosis.wording import time
from rules_engine.model.finding import NotEvaluated, ObjectName
from rules_engine.model.json.patch import Json


def json_report(report: Report) -> Json:
    """Return the document of `doctor --output json`."""
    overview = report.overview
    return {
        "time": _time(report.now),
        "scope": _scope(report.scope),
        "rules": report.rules,
        "objects": dict(report.objects),
        "notRead": [{"objects": absent.objects, "unknown": absent.unknown} for absent in report.absent],
        "nodes": [_node(node) for node in overview.nodes],
        "devicePlugins": [_device_plugin(plugin) for plugin in overview.device_plugins],
        "pods": [_pod(pod) for pod in overview.pods],
        "pendingPods": [_pending(pending) for pending in overview.pending],
        "errors": [_error(error) for error in overview.errors],
        "moreErrors": overview.more_errors,
        "findings": [_finding(group) for group in report.findings],
        "notEvaluated": [_not_evaluated(each) for each in report.not_evaluated],
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else time(at)


def _scope(scope: Scope) -> Json:
    return {
        "pod": None if scope.pod is None else f"{scope.pod.namespace}/{scope.pod.name}",
        "node": scope.node or None,
        "namespace": scope.namespace or None,
        "sinceSeconds": int(scope.since.total_seconds()),
    }


def _node(node: GpuNode) -> Json:
    return {
        "name": node.name,
        "product": node.product,
        "ready": node.ready,
        "cordoned": node.cordoned,
        "resources": {
            resource: {
                "capacity": amounts.capacity,
                "allocatable": amounts.allocatable,
                "allocated": amounts.allocated,
                "free": amounts.free,
            }
            for resource, amounts in node.resources.items()
        },
    }


def _device_plugin(plugin: DevicePlugin) -> Json:
    return {
        "object": str(plugin.name),
        "desired": plugin.desired,
        "ready": plugin.ready,
        "unready": [{"object": str(pod.name), "node": pod.node, "status": pod.status} for pod in plugin.unready],
    }


def _pod(pod: GpuPod) -> Json:
    return {
        "object": str(pod.name),
        "node": pod.node,
        "status": pod.status,
        "amounts": dict(pod.amounts),
        "since": _time(pod.since),
    }


def _pending(pending: PendingPod) -> Json:
    finding = pending.finding
    return {
        "objects": _names(pending.pods),
        "since": _time(pending.since),
        "amounts": dict(pending.amounts),
        "recomputed": pending.recomputed,
        "recorded": pending.recorded,
        "agreement": pending.agreement.value,
        "note": pending.note,
        "evaluated": pending.evaluated,
        "finding": {"reason": finding.reason, "certainty": finding.certainty.value, "message": finding.message},
    }


def _error(error: RecentError) -> Json:
    return {
        "objects": _names(error.objects),
        "reason": error.reason,
        "message": error.message,
        "count": error.count,
        "at": _time(error.at),
    }


def _finding(group: FindingGroup) -> Json:
    finding = group.finding
    return {
        "reason": finding.reason,
        "severity": finding.severity.value,
        "certainty": finding.certainty.value,
        "objects": _names(group.objects),
        "message": finding.message,
        "cause": finding.cause,
        "effects": [_finding(FindingGroup(finding=each, objects=group.objects)) for each in group.effects],
        "evidence": list(finding.evidence),
        "remedies": [
            {"text": remedy.text, "command": remedy.command or None, "risk": remedy.risk.value}
            for remedy in finding.remedies
        ],
        "onHost": finding.on_host,
        "diagnostic": finding.source or None,
        "source": None if finding.location is None else str(finding.location),
    }


def _not_evaluated(each: NotEvaluated) -> Json:
    first = None if each.first is None else str(each.first)
    return {"diagnostic": each.source, "why": each.why, "objects": each.objects, "first": first}


def _names(objects: Iterable[ObjectName]) -> Json:
    return [str(name) for name in objects]
