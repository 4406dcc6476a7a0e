"""Rules that GPUOffers, the parameter of native policies, leave out."""

from collections.abc import Iterator

from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.kubernetes.cluster_objects import ClusterObjects
from rules_engine.model.kubernetes.native_objects import OFFERS
from rules_engine.model.rules.finding import Finding
from rules_engine.model.wording import MAX_JOINED, format_count
from rules_engine.questions.doctor.reasons import NativeReason
from rules_engine.questions.doctor.wording import quote_message
from rules_engine.rules.diagnostic.catalogue import new_finding


def find_incomplete_offers(cluster: ClusterObjects) -> Iterator[Finding]:
    """Yield a finding for each GPUOffers that leave out a rule."""
    for offers in cluster.of(OFFERS):
        omitted = as_mapping(offers.spec.get("omitted"))
        if omitted:
            yield new_finding(
                NativeReason.OFFERS_INCOMPLETE,
                offers.object_name,
                slots={"rules": format_count(len(omitted), "rule")},
                evidence=[quote_message(f"{rule}: {reason}") for rule, reason in [*omitted.items()][:MAX_JOINED]],
            )
