"""Rules that GPUOffers, the parameter of native policies, leave out."""

from collections.abc import Iterator

from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.native_objects import OFFERS
from rules_engine.model.rules.finding import Finding, FindingSeverity, Remedy, Risk
from rules_engine.model.wording import MAX_JOINED, format_count
from rules_engine.questions.doctor.reasons import NativeReason
from rules_engine.questions.doctor.wording import quote_message


def find_incomplete_offers(cluster: ClusterObjects) -> Iterator[Finding]:
    """Yield a finding for each GPUOffers that leave out a rule."""
    for offers in cluster.of(OFFERS):
        omitted = as_mapping(offers.spec.get("omitted"))
        if omitted:
            yield Finding(
                reason=NativeReason.OFFERS_INCOMPLETE,
                severity=FindingSeverity.WARNING,
                object=offers.object_name,
                message=f"the API server has no offers for {format_count(len(omitted), 'rule')}",
                cause="Drivers serve a resource of the rule, or its nodes have too many shapes. Ladders then change no "
                "pod, and checks that read amounts fail.",
                evidence=tuple(quote_message(f"{rule}: {reason}") for rule, reason in [*omitted.items()][:MAX_JOINED]),
                remedies=(
                    Remedy(
                        text="Let the webhooks evaluate all rules again.",
                        command="gpu-rules webhook-config --rules FOLDER | kubectl apply -f -",
                        risk=Risk.MEDIUM,
                    ),
                ),
            )
