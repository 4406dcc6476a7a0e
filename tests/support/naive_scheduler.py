"""A second, slow implementation of kube-scheduler's filters: node by node, on the objects as they are."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tests.support.placing import parse_int

Object = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SUFFIXES: dict[str, int | Fraction] = {
    "m": Fraction(1, 1000),
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "k": 1000,
    "M": 10**6,
    "G": 10**9,
}


def reasons(
    pod: Object, nodes: Sequence[Object], bound: Sequence[Object], namespaces: Sequence[Object]
) -> Counter[str]:
    """Count the reasons of the first filter that fails on each node; a node that passes counts for none."""
    return Counter(why for found in node_reasons(pod, nodes, bound, namespaces).values() for why in found)


def node_reasons(
    pod: Object,
    nodes: Sequence[Object],
    bound: Sequence[Object],
    namespaces: Sequence[Object],
    removed: Sequence[Object] = (),
) -> dict[str, list[str]]:
    """Return the reasons of the first filter that fails on each node, by the names of all nodes.

    `removed`: pods that are not bound any more in a trial of preemption.
    """
    world = _World(pod, nodes, bound, namespaces)
    world.removed = removed
    return {node["metadata"]["name"]: world.reasons(node) for node in nodes}


class _World:
    def __init__(
        self, pod: Object, nodes: Sequence[Object], bound: Sequence[Object], namespaces: Sequence[Object]
    ) -> None:
        self.pod, self.nodes, self.spec = pod, nodes, pod["spec"]
        self.removed: Sequence[Object] = ()
        self.on: dict[str, list[Object]] = {node["metadata"]["name"]: [] for node in nodes}
        for other in bound:
            self.on[other["spec"]["nodeName"]].append(other)
        self.placed = [(node, other) for node in nodes for other in self.on[node["metadata"]["name"]]]
        self.namespaces = {
            found["metadata"]["name"]: found["metadata"]["labels"]
            | {"kubernetes.io/metadata.name": found["metadata"]["name"]}
            for found in namespaces
        }

    def reasons(self, node: Object) -> list[str]:
        names = self.names()
        if names is not None and node["metadata"]["name"] not in names:
            return ["node(s) didn't satisfy plugin(s) [NodeAffinity]"] if names else []
        cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        if node["spec"].get("unschedulable") and not self.tolerates(cordon):
            return ["node(s) were unschedulable"]
        if self.repelled(node):
            return ["node(s) had untolerated taint(s)"]
        if not self.selects(node):
            return ["node(s) didn't match Pod's node affinity/selector"]
        if self.conflicts(node):
            return ["node(s) didn't have free ports for the requested pod ports"]
        return (
            self.insufficient(node)
            or [found for found in [self.skewed(node)] if found]
            or [found for found in [self.apart(node)] if found]
        )

    # Taints and node affinity

    def tolerates(self, taint: Object) -> bool:
        for one in self.spec.get("tolerations", []):
            same = one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", "")
            if same and one.get("key") in (None, taint["key"]) and one.get("effect") in (None, taint["effect"]):
                return True
        return False

    def repelled(self, node: Object) -> bool:
        return any(
            taint["effect"] != "PreferNoSchedule" and not self.tolerates(taint) for taint in node["spec"]["taints"]
        )

    def terms(self) -> list[Object] | None:
        affinity = self.spec.get("affinity", {}).get("nodeAffinity")
        return None if affinity is None else affinity[_REQUIRED]["nodeSelectorTerms"]

    def names(self) -> set[str] | None:
        found: set[str] = set()
        for term in self.terms() or [{}]:
            fields = [set(field["values"]) for field in term.get("matchFields", []) if field["operator"] == "In"]
            if not fields:
                return None
            found |= set.intersection(*fields)
        return found

    def selects(self, node: Object) -> bool:
        labels, name = node["metadata"]["labels"], {"metadata.name": node["metadata"]["name"]}
        if any(labels.get(key) != value for key, value in self.spec.get("nodeSelector", {}).items()):
            return False
        terms = self.terms()
        return terms is None or any(
            term
            and all(_holds(one, labels) for one in term.get("matchExpressions", []))
            and all(_holds(one, name) for one in term.get("matchFields", []))
            for term in terms
        )

    # Ports and resources

    def conflicts(self, node: Object) -> bool:
        used = [port for other in self.on[node["metadata"]["name"]] for port in _ports(other)]
        for address, protocol, number in _ports(self.pod):
            for taken, other_protocol, other in used:
                if (protocol, number) == (other_protocol, other) and (
                    address == taken or "0.0.0.0" in (address, taken)
                ):
                    return True
        return False

    def insufficient(self, node: Object) -> list[str]:
        allocatable, others = node["status"]["allocatable"], self.on[node["metadata"]["name"]]
        found = []
        if len(others) + 1 > int(allocatable["pods"]):
            found.append("Too many pods")
        for resource, amount in _requests(self.pod).items():
            used = sum(_requests(other).get(resource, 0) for other in others)
            if amount and amount > _units(resource, _amount(allocatable.get(resource, "0"))) - used:
                found.append(f"Insufficient {resource}")
        return found

    # Topology spread

    def skewed(self, node: Object) -> str | None:
        constraints = [
            one for one in self.spec.get("topologySpreadConstraints", []) if one["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        keys = [one["topologyKey"] for one in constraints]
        for one in constraints:
            key = one["topologyKey"]
            if key not in node["metadata"]["labels"]:
                return "node(s) didn't match pod topology spread constraints (missing required label)"
            counts = self.domains(one, keys)
            least = min(counts.values(), default=0) if len(counts) >= one.get("minDomains", 1) else 0
            mine = self.counts_for(one, self.pod)
            if counts.get(node["metadata"]["labels"][key], 0) + mine - least > one["maxSkew"]:
                return "node(s) didn't match pod topology spread constraints"
        return None

    def domains(self, constraint: Object, keys: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in self.nodes:
            labels = node["metadata"]["labels"]
            if not all(key in labels for key in keys):
                continue
            if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not self.selects(node):
                continue
            if constraint.get("nodeTaintsPolicy") == "Honor" and self.repelled(node):
                continue
            value = labels[constraint["topologyKey"]]
            found.setdefault(value, 0)
            for other in self.removed:
                # PreFilterExtensions.RemovePod subtracts each that matches, counted before or not.
                never = "deletionTimestamp" in other["metadata"] or not constraint.get("labelSelector")
                same = other["metadata"]["namespace"] == self.pod["metadata"]["namespace"]
                if never and same and other["spec"]["nodeName"] == node["metadata"]["name"]:
                    found[value] -= self.counts_for(constraint, other)
            for other in self.on[node["metadata"]["name"]]:
                same = other["metadata"]["namespace"] == self.pod["metadata"]["namespace"]
                gone = "deletionTimestamp" in other["metadata"]
                if same and not gone and constraint.get("labelSelector"):
                    found[value] += self.counts_for(constraint, other)
        return found

    def counts_for(self, constraint: Object, other: Object) -> bool:
        labels, mine = other["metadata"]["labels"], self.pod["metadata"]["labels"]
        return _matches(constraint.get("labelSelector"), labels) and all(
            labels.get(key) == mine[key] for key in constraint.get("matchLabelKeys", []) if key in mine
        )

    # Pod affinity

    def apart(self, node: Object) -> str | None:
        labels = node["metadata"]["labels"]
        near = self.pod_terms(self.pod, "podAffinity")
        if near and not self.affine(near, labels):
            return "node(s) didn't match pod affinity rules"
        for term in self.pod_terms(self.pod, "podAntiAffinity"):
            key = term["topologyKey"]
            for place, other in self.placed:
                if _together(key, labels, place) and self.incoming(term, other):
                    return "node(s) didn't match pod anti-affinity rules"
        for place, other in self.placed:
            for term in self.pod_terms(other, "podAntiAffinity"):
                if _together(term["topologyKey"], labels, place) and self.existing(term, other):
                    return "node(s) didn't satisfy existing pods anti-affinity rules"
        return None

    def affine(self, terms: Sequence[Object], labels: Object) -> bool:
        if not all(term["topologyKey"] in labels for term in terms):
            return False
        matching = [place for place, other in self.placed if all(self.incoming(term, other) for term in terms)]
        if all(any(_together(term["topologyKey"], labels, place) for place in matching) for term in terms):
            return True
        anywhere = any(term["topologyKey"] in place["metadata"]["labels"] for term in terms for place in matching)
        return not anywhere and all(self.incoming(term, self.pod) for term in terms)

    @staticmethod
    def pod_terms(pod: Object, kind: str) -> list[Object]:
        found: list[Object] = pod["spec"].get("affinity", {}).get(kind, {}).get(_REQUIRED, [])
        return found

    def incoming(self, term: Object, other: Object) -> bool:
        """A term of the pod to schedule on another pod; its namespace selector is also compared with no labels."""
        namespace, selector = other["metadata"]["namespace"], term.get("namespaceSelector")
        listed = term.get("namespaces") or ([self.pod["metadata"]["namespace"]] if selector is None else [])
        selected = selector is not None and (_matches(selector, self.namespaces[namespace]) or _matches(selector, {}))
        return (namespace in listed or selected) and _matches(term.get("labelSelector"), other["metadata"]["labels"])

    def existing(self, term: Object, other: Object) -> bool:
        namespace, selector = self.pod["metadata"]["namespace"], term.get("namespaceSelector")
        listed = term.get("namespaces") or ([other["metadata"]["namespace"]] if selector is None else [])
        selected = selector is not None and _matches(selector, self.namespaces[namespace])
        labels = self.pod["metadata"]["labels"]
        return (namespace in listed or selected) and _matches(term.get("labelSelector"), labels)


def _together(key: str, labels: Object, place: Object) -> bool:
    return key in labels and place["metadata"]["labels"].get(key) == labels[key]


def _holds(expression: Object, labels: Object) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", [])
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            number = parse_int(value or "")
            return number is not None and (number > int(values[0]) if operator == "Gt" else number < int(values[0]))


def _matches(selector: Object | None, labels: Object) -> bool:
    return (
        selector is not None
        and all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
        and all(_holds(one, labels) for one in selector.get("matchExpressions", []))
    )


def _ports(pod: Object) -> list[tuple[str, str, int]]:
    running = [
        *pod["spec"]["containers"],
        *(one for one in pod["spec"].get("initContainers", []) if one.get("restartPolicy") == "Always"),
    ]
    return [
        (port.get("hostIP", "0.0.0.0"), port.get("protocol", "TCP"), port["hostPort"])
        for container in running
        for port in container.get("ports", [])
    ]


def _requests(pod: Object) -> dict[str, int]:
    def of(container: Object, resource: str) -> Fraction:
        return _amount(container["resources"]["requests"].get(resource, "0"))

    regular, init = pod["spec"]["containers"], pod["spec"].get("initContainers", [])
    resources = [name for one in (*regular, *init) for name in one["resources"]["requests"]]
    found = {}
    for resource in dict.fromkeys(resources):
        sidecars = peak = Fraction(0)
        for one in init:
            amount = of(one, resource)
            if one.get("restartPolicy") == "Always":
                sidecars += amount
                peak = max(peak, sidecars)
            else:
                peak = max(peak, sidecars + amount)
        total = max(sum((of(one, resource) for one in regular), sidecars), peak)
        found[resource] = _units(resource, total)
    level = pod["spec"].get("resources", {}).get("requests", {})
    return found | {resource: _units(resource, _amount(amount)) for resource, amount in level.items()}


def _units(resource: str, amount: Fraction) -> int:
    return -int(-amount * (1000 if resource == "cpu" else 1) // 1)


def _amount(text: str) -> Fraction:
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text)
