"""Kubernetes Events of findings, about the objects that they name."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from rules_engine.model.json.lenient import text_member
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, DIAGNOSED_RESOURCES, FINDINGS, ClusterObjects
from rules_engine.model.kubernetes.names import DEFAULT_NAMESPACE, ObjectName, is_label, is_subdomain
from rules_engine.model.rules.finding import Certainty, Finding, FindingSeverity
from rules_engine.questions.doctor.values import Diagnosis
from rules_engine.questions.doctor.wording import without_names
from rules_engine.server.telemetry.events import Event

QUIET_SECONDS = 3000.0
"""Time in which an Event is not sent again: less than the hour after which it expires (kube-apiserver, --event-ttl)."""

KINDS = DIAGNOSED_RESOURCES.keys() - {"Event"}
"""The kinds that Events refer to; there are none about Events and about the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEvent(Event):
    """The Event of a finding about one object. A message that changes, such as an age, makes no other Event."""

    message: str = field(compare=False)


def finding_events(report: Diagnosis, cluster: ClusterObjects) -> Iterator[FindingEvent]:
    """Yield the Event of each finding about each object, the worst findings first.

    A group has the message of its first object. Events about its other objects quote it with that object's name, and in
    other namespaces without any names.
    """
    findings = [(finding, group.objects) for group in report.findings for finding in (group, *group.effects)]
    for finding, objects in findings:
        doubt = "possible: " if finding.certainty is Certainty.POSSIBLE else ""
        for name in objects:
            named = is_subdomain(name.name) and (not name.namespace or is_label(name.namespace))
            if name.kind not in KINDS or not named:
                continue
            object = cluster.find(name.kind, name.name, name.namespace)
            reference = {
                "apiVersion": API_KINDS[name.kind].api_version,
                "kind": name.kind,
                "name": name.name,
                "uid": "" if object is None else text_member(object.metadata, "uid"),
            }
            yield FindingEvent(
                namespace=name.namespace or DEFAULT_NAMESPACE,
                about=tuple((key, value) for key, value in reference.items() if value),
                type="Normal" if finding.severity is FindingSeverity.INFO else "Warning",
                reason=finding.reason,
                message=f"{doubt}{_event_message(finding, name)}",
                component=FINDINGS,
                of_cluster=not name.namespace,
            )


def _event_message(finding: Finding, about: ObjectName) -> str:
    if about == finding.object:
        return finding.message
    if finding.object.namespace in ("", about.namespace):
        return f"like {finding.object}: {finding.message}"
    return without_names(finding.message, finding.object, placeholder="…")
