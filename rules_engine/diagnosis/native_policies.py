"""Problems of native policies: objects with which the API server evaluates rules itself."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from rules_engine.diagnosis.objects.drivers import drivers_of
from rules_engine.diagnosis.objects.timestamps import LONG_AGO, parse_timestamp
from rules_engine.diagnosis.reasons import NativeReason
from rules_engine.diagnosis.wording import MAX_NAMES, join_names, quote_message, shell_command
from rules_engine.evaluation.rule_set.rule_set import RuleSet
from rules_engine.model.json.lenient import as_mapping, object_items, text_member
from rules_engine.model.kubernetes.cluster_objects import ApiObject, ClusterObjects, NodeObject
from rules_engine.model.kubernetes.names import ObjectName
from rules_engine.model.kubernetes.native_objects import (
    NATIVE_RESOURCES,
    OFFERS,
    RULES_ANNOTATION,
    STAMP_ANNOTATION,
    STAMPED_DIGITS,
    SWITCH,
    annotation_of,
)
from rules_engine.model.rules.finding import Finding, FindingSeverity, Remedy, Risk
from rules_engine.model.wording import format_count, format_time
from rules_engine.native.offers import DEFINITION_NAME, build_offers
from rules_engine.native.policy import translate_rules
from rules_engine.webhooks.installed import native_mode

CONFIRMED = timedelta(minutes=2)
"""Age of offers up to which a writer runs: it confirms them every 30 seconds."""

CHANGING = timedelta(minutes=5)
"""Time after a policy was created in which policies of two rule sets may exist, and is given to the writer."""

_REMEDIES = (
    Remedy(text="Look for the reason in `native` of the server's /readyz, if the server writes the policies."),
    Remedy(
        text="Print and apply the policies again, if `gpu-rules native` printed them.",
        command="gpu-rules native --rules FOLDER --cluster kubeconfig | kubectl apply -f -",
        risk=Risk.MEDIUM,
    ),
)


def find_native(cluster: ClusterObjects, rule_set: RuleSet | None, digest: str) -> Iterator[Finding]:
    """Yield the findings about the objects of all installations. `digest`: of the active rules, "" if unknown."""
    own = [each for kind in NATIVE_RESOURCES for each in cluster.of(kind) if annotation_of(each, RULES_ANNOTATION)]
    yield from _missing_offers(cluster, own)
    yield from list(_other_rules(cluster, own, digest)) or _edited(cluster, own, rule_set, digest)
    for each in own:
        warnings = object_items(as_mapping(each.status.get("typeChecking")).get("expressionWarnings"))
        if text_member(each, "kind") == OFFERS:
            is_active = digest == annotation_of(each, RULES_ANNOTATION)
            yield from _outdated_offers(cluster, each, rule_set if is_active else None)
        elif warnings:
            command = shell_command("kubectl", "get", text_member(each, "kind").lower(), each.name, "-o", "yaml")
            yield _finding(
                NativeReason.TYPE_CHECK,
                each.object_name,
                f"the API server warns of {format_count(len(warnings), 'expression')} of the policy",
                "An expression reads a field that pods do not have, or uses a value as another type.",
                *(
                    quote_message(f"{text_member(it, 'fieldRef')}: {text_member(it, 'warning')}")
                    for it in warnings[:MAX_NAMES]
                ),
                remedies=(Remedy(text="Correct the expressions of the rule.", command=command, risk=Risk.MEDIUM),),
            )


def _finding(
    reason: NativeReason,
    about: ObjectName,
    message: str,
    cause: str,
    *evidence: str,
    remedies: tuple[Remedy, ...] = _REMEDIES,
) -> Finding:
    severity = FindingSeverity.ERROR if reason is NativeReason.OFFERS_MISSING else FindingSeverity.WARNING
    return Finding(
        reason=reason,
        severity=severity,
        object=about,
        message=message,
        cause=cause,
        evidence=evidence,
        remedies=remedies,
    )


def _missing_offers(cluster: ClusterObjects, own: Sequence[ApiObject]) -> Iterator[Finding]:
    readers: dict[str, list[str]] = {}
    for each in own:
        name = text_member(as_mapping(each.spec.get("paramRef")), "name")
        if name and OFFERS not in cluster.absent and cluster.find(OFFERS, name) is None:
            readers.setdefault(name, []).append(each.object_name.title)
    served = cluster.is_served(OFFERS)
    lacking = [] if served else [f"the API server does not serve CustomResourceDefinition {DEFINITION_NAME}"]
    for name, titles in readers.items():
        yield _finding(
            NativeReason.OFFERS_MISSING,
            ObjectName(OFFERS, quote_message(name)),
            "the offers do not exist, and policies that read them admit pods unchanged",
            "The offers or their definition were deleted, or not applied with the policies.",
            *lacking,
            f"read by {join_names(titles)}",
        )


def _other_rules(cluster: ClusterObjects, own: Sequence[ApiObject], digest: str) -> Iterator[Finding]:
    """Compare the objects of each installation with the active rules, then with its switch between slots."""
    switches = {each.name for each in own if text_member(each, "kind") == SWITCH}
    installations: dict[str, list[ApiObject]] = {}
    for each in own:
        names = (each.name[:end] for end in range(len(each.name), 0, -1) if each.name[end : end + 1] in ("", "-"))
        installations.setdefault(next((name for name in names if name in switches), ""), []).append(each)
    for objects in installations.values():
        if _is_changing(cluster, objects):
            continue
        first = objects[0]  # the switch, if there is one
        other = [each for each in objects if digest and annotation_of(each, RULES_ANNOTATION) != digest]
        expected, what = digest, "rules than the active ones"
        if not other:
            other = [each for each in objects if _stamps(each) != _stamps(first)]
            expected, what = _stamps(first)[0], f"rules or settings than {first.object_name.title}"
        if other:
            digests = [text[:STAMPED_DIGITS] for text in (annotation_of(other[0], RULES_ANNOTATION), expected)]
            yield _finding(
                NativeReason.OTHER_RULES,
                other[0].object_name,
                f"native policies are of other {what}",
                "No writer changes them, the API server refuses the rules, or they were not applied again.",
                quote_message(f"digest of the rules: {digests[0]}, expected: {digests[1]}"),
                f"objects: {join_names([each.object_name.title for each in other])}",
            )


def _is_changing(cluster: ClusterObjects, objects: Sequence[ApiObject]) -> bool:
    created = [parse_timestamp(each.metadata, "creationTimestamp") or LONG_AGO for each in objects]
    return cluster.now - max(created) < CHANGING


def _edited(
    cluster: ClusterObjects, own: Sequence[ApiObject], rule_set: RuleSet | None, digest: str
) -> Iterator[Finding]:
    """Compare the objects of the active rules with the rules; without rules, bindings with policies."""
    own = [each for each in own if not digest or annotation_of(each, RULES_ANNOTATION) == digest]
    if not own or not cluster.absent.isdisjoint(NATIVE_RESOURCES) or _is_changing(cluster, own):
        return
    lacking = _unbound(own) if rule_set is None else native_mode(rule_set, digest, own).differences
    if lacking:
        yield _finding(
            NativeReason.EDITED,
            own[0].object_name,
            "native policies are missing or edited, and their rules may not be evaluated",
            "Somebody deleted or edited them, and no writer restores them.",
            *map(quote_message, lacking[:MAX_NAMES]),
            remedies=(
                _REMEDIES[0],
                Remedy(
                    text="Replace edited policies, and apply missing ones, if `gpu-rules native` printed them. "
                    "`kubectl apply` keeps match conditions that somebody added.",
                    command="gpu-rules native --rules FOLDER --cluster kubeconfig | kubectl replace -f -",
                    risk=Risk.MEDIUM,
                ),
            ),
        )


def _unbound(own: Sequence[ApiObject]) -> Sequence[str]:
    """Return the policies without a binding, and those that only have one."""
    policies: set[tuple[str, str]] = set()
    bound: set[tuple[str, str]] = set()
    for each in own:
        kind, name = text_member(each, "kind"), text_member(each.spec, "policyName")
        if name:
            bound.add((kind.removesuffix("Binding"), name))
        elif kind != OFFERS:
            policies.add((kind, each.name))
    lacking = [f"{kind} {name} has no binding" for kind, name in sorted(policies - bound)]
    return lacking + [f"{kind} {name} does not exist, but has a binding" for kind, name in sorted(bound - policies)]


def _stamps(value: ApiObject) -> tuple[str, str]:
    return annotation_of(value, RULES_ANNOTATION), annotation_of(value, STAMP_ANNOTATION)


def _outdated_offers(cluster: ClusterObjects, offers: ApiObject, rule_set: RuleSet | None) -> Iterator[Finding]:
    """Compare offers with what nodes offer to their rules; without these, their age with the nodes' last change."""
    written = parse_timestamp(offers.status, "writtenAt")
    if written is not None and cluster.now - written < CONFIRMED:
        return
    if rule_set is not None:
        spec = build_offers(translate_rules(rule_set), drivers_of(cluster).view)
        names = [name for name in spec if offers.spec.get(name) != spec[name]]
        evidence = f"nodes offer something else now: {join_names(names)}"
    else:
        names = [node.name for node in cluster.nodes if written is not None and _changed_at(node) > written]
        evidence = f"created or changed since: {join_names(names)}"
    if names:
        yield _finding(
            NativeReason.OFFERS_OUTDATED,
            offers.object_name,
            "the offers are older than the last change of the nodes",
            "No writer confirms them, or they were not applied again: ladders choose by what nodes offered then.",
            *([] if written is None else [f"written at {format_time(written)}"]),
            evidence,
        )


def _changed_at(node: NodeObject) -> datetime:
    """Return the time at which a node was created or became ready or not ready; other changes have no time."""
    created, ready = (
        parse_timestamp(members, name) or LONG_AGO
        for members, name in ((node.metadata, "creationTimestamp"), (node.condition("Ready"), "lastTransitionTime"))
    )
    return max(created, ready)
