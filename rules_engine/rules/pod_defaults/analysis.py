"""Problems of valid PodDefaults, alone, together and on a cluster."""

import re
from collections.abc import Iterator, Sequence, Set
from itertools import chain

from rules_engine.cluster.state_taints import state_of
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.kubernetes.cluster import ClassScheduling, Cluster
from rules_engine.model.kubernetes.names import QUEUE_LABEL
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.problems.codes import Code, ProblemCode
from rules_engine.model.problems.problem import Problem, did_you_mean, warning
from rules_engine.rules.entries import warn_of_entries
from rules_engine.rules.overlap import EarlierRules, always_first, may_share_pods, precedence_basis
from rules_engine.rules.pod_defaults.value import DefaultsEntry, PodDefaults, PodDefaultsCode
from rules_engine.rules.pod_members.analysis import label_hint, useless_tolerations
from rules_engine.rules.pod_members.value import FIELDS, Member, toleration_of, toleration_text, tolerations_in
from rules_engine.rules.resource_names import name_warnings
from rules_engine.rules.rule_set.globs import is_glob


def analyse(rules: Sequence[PodDefaults]) -> Iterator[Problem]:
    """Yield warnings about rules that are loaded together, in the order of evaluation."""
    for rule in rules:
        yield from warn_of_entries(rule)
        place = rule.origin.get(("match", "resources"), rule.location)
        names = [name for name in rule.match.resources if not is_glob(name)]
        for name in names:
            yield from name_warnings(name, names, place, "resources")
        for entry in rule.entries:
            yield from _warn_members(rule, entry, rules)
    yield from _warn_unreachable(rules)


def _warn_members(rule: PodDefaults, entry: DefaultsEntry, rules: Sequence[PodDefaults]) -> Iterator[Problem]:
    """Warn of mounts whose volume no rule adds to the same pods, and of Kueue's label of Jobs."""
    for member in entry.by_path.values():
        if member.field is FIELDS["labels"] and member.name == QUEUE_LABEL:
            message = (
                "Kueue reads this label of a Job: it ignores that of a pod whose controller it manages, and queues "
                "other pods one by one"
            )
            yield _warning(PodDefaultsCode.QUEUE_ON_PODS, message, member)
        elif member.field is FIELDS["volumeMounts"]:
            volume = text_member(as_mapping(member.value), "name")
            others = (other for other in rules if other is not rule and may_share_pods(other, rule))
            entries = chain([entry], (each for other in others for each in other.entries))
            added = (each.name for one in entries for each in one.pod if each.field is FIELDS["volumes"])
            if volume not in added:
                message = f"no rule adds the volume '{volume}': the API server refuses pods without one of this name"
                yield _warning(PodDefaultsCode.MOUNT_WITHOUT_VOLUME, message, member)


def _warn_unreachable(rules: Sequence[PodDefaults]) -> Iterator[Problem]:
    """Warn once of each rule with members whose keys earlier rules always decide."""
    before = EarlierRules[PodDefaults]()
    for later in rules:
        rivals = [each for each in before.matching(later.match.namespaces[0]) if always_first(each, later)]
        before.add(later)
        decided: dict[str, tuple[Member, list[PodDefaults | None]]] = {}
        for namespace in filter(later.may_apply, (None, *later.namespaces)):
            for path, member in (later.default if namespace is None else later.entry(namespace)).by_path.items():
                # The value of a toleration is its key: the values of two computed ones may differ.
                fixed = not (member.computed and member.field.shape == "Toleration")
                rival = next((each for each in rivals if fixed and _decides(each, namespace, path, later)), None)
                decided.setdefault(path, (member, []))[1].append(rival)
        unused = [(member, first) for member, [first, *others] in decided.values() if first and None not in others]
        for member, first in unused[:1]:
            titles = ", ".join(dict.fromkeys(each.title for each, _ in unused))
            message = (
                f"{titles}: decided by {first.id} ({first.location}) instead, which comes first by "
                f"{precedence_basis(first, later)}"
            )
            yield _warning(PodDefaultsCode.UNREACHABLE_MEMBER, message, member)


_CHOICE = re.compile(r"(?<=^containers)\[[^]]*\]")
"""The containers of a member, in its path."""


def _decides(rule: PodDefaults, namespace: str | None, path: str, later: PodDefaults) -> bool:
    """Return True if a rule decides a member of a later one in a namespace; None: in all of them."""
    entries = rule.entries if namespace is None else (rule.entry(namespace),)
    # Which containers are Requesting depends on the resources.
    same = rule.match.resources == later.match.resources or "equesting]" not in path
    return all({_CHOICE.sub("[All]", path), path if same else ""} & entry.by_path.keys() for entry in entries)


def analyse_on(rules: Sequence[PodDefaults], cluster: Cluster) -> Iterator[Problem]:
    """Yield warnings about classes, labels of nodes and taints that a cluster does not have."""
    entries = [entry for rule in rules for entry in rule.entries]
    labels = {label for node in cluster.nodes for label in node.labels.items()}
    tolerations = [toleration for entry in entries for toleration in tolerations_in(entry.pod)]
    useless = {*useless_tolerations(tolerations, cluster.nodes)} if cluster.nodes else set()
    for entry in entries:
        for member in entry.pod:
            if not member.computed:
                yield from _warn_on(member, entry, cluster, labels, useless)


def _warn_on(
    member: Member, entry: DefaultsEntry, cluster: Cluster, labels: Set[tuple[str, str]], useless: Set[Toleration]
) -> Iterator[Problem]:
    """Warn of one member that cannot work on a cluster."""
    field, value = member.field.name, str(member.value)
    known = {"priorityClassName": cluster.classes.priority, "runtimeClassName": cluster.classes.runtime}.get(field)
    if field == "nodeSelector" and cluster.nodes and (member.name, value) not in labels:
        hint = label_hint(member.name, value, cluster.nodes)
        message = f"no node has {member.name}={value}{hint}: the pods are not scheduled"
        yield _warning(PodDefaultsCode.UNMATCHED_SELECTOR, message, member)
    elif field == "tolerations" and (toleration := toleration_of(member.value)) in useless:
        # Nodes have the taints of a state only while they are in it.
        if state_of(toleration.key) is None:
            message = f"no node has a taint that this tolerates: {toleration_text(toleration)}"
            yield _warning(Code.USELESS_TOLERATION, message, member)
    elif known is not None and value not in known:
        kind = field[0].upper() + field[1:].removesuffix("Name")
        message = f"the cluster has no {kind} '{value}'{did_you_mean(value, known)}: the API server refuses the pods"
        yield _warning(PodDefaultsCode.UNKNOWN_CLASS, message, member)
    elif field == "runtimeClassName":
        required = (cluster.classes.runtime or {}).get(value, ClassScheduling()).node_selector
        for other in entry.pod:
            own, text = str(other.value), required.get(other.name)
            if other.field is FIELDS["nodeSelector"] and not other.computed and text not in (None, own):
                message = f"the RuntimeClass '{value}' selects {other.name}={text}: the API server refuses the pods"
                yield _warning(PodDefaultsCode.SELECTOR_CONFLICT, message, other)


def _warning(code: ProblemCode, message: str, member: Member) -> Problem:
    """Return a warning about a member, which marks its name or value."""
    text = "" if member.field.shape == "Toleration" else member.name or str(member.value or "")
    return warning(code, message, member.location, text)
