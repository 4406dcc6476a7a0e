"""Arriving pods: their names, their templates, and the runs that create and replace them."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct

from rules_engine.cluster.scheduling.choice import uniform_fraction
from rules_engine.cluster.scheduling.cycle import SchedulablePod
from rules_engine.model.json.lenient import as_mapping, controller_reference, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.api_defaults import with_default_requests
from rules_engine.model.kubernetes.cluster_objects import PodObject
from rules_engine.model.rules.simulation import Arrival, Distribution, Milliseconds, PodGroup
from rules_engine.questions.simulate.admission import Template, marshal_value
from rules_engine.questions.simulate.record import PodRecord


class UniquePodNames:
    """The names of all pods so far. Each pod has a name of its own, as in a cluster that keeps pods that have ended."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        """The last number appended to each name that is taken."""

    def copy(self) -> "UniquePodNames":
        """Return the names so far, to which others are added apart from these."""
        names = UniquePodNames()
        names._taken = {**self._taken}
        return names

    def take(self, namespace: str, wanted: str) -> str:
        """Return the wanted name in a namespace, with a number if the name is taken."""
        first = f"{namespace}/{wanted}"
        name, number = wanted, self._taken.get(first, 1)
        while f"{namespace}/{name}" in self._taken:
            number += 1
            name = f"{wanted}-{number}"
        self._taken[first] = number
        self._taken.setdefault(f"{namespace}/{name}", 1)
        return name


class Run(Struct, eq=False):
    """Pods that arrive together from one template: `parallel` at once, then one for each that ends, `total` in all.

    `arrival`: the number of the arrival; None: the pod existed at the beginning. `base`: the name of the pods, or its
    prefix if they are `controlled`. `scaled`: their controller has a scale. `drained`: they leave drained nodes.
    `created` and `named` count the pods without replacements.
    """

    template: Template
    base: str
    arrival: int | None
    run_for: Distribution | None
    controlled: bool
    scaled: bool = False
    drained: bool = True
    parallel: int = 1
    total: int = 1
    created: int = 0
    named: int = 0

    def next_name(self) -> str:
        """Return the name of the next pod, if it is not taken."""
        # Ordinals of StatefulSets and Indexed Jobs, whose names are not generated, begin at 0.
        number = self.named + self.template.is_generated
        self.named += 1
        return f"{self.base}-{number}" if self.controlled else self.base


class ArrivedPod(Struct, eq=False):
    """A pod that was admitted; `number` counts the pods by their arrival.

    `grace`: time on a node that is not ready before its eviction; None: never evicted. `origin`: its name, or the name
    of the first pod in the chain that it replaces; `losses`: the length of that chain.
    """

    number: int
    record: PodRecord
    run: Run
    pod: SchedulablePod
    grace: Milliseconds | None
    origin: str
    losses: int

    @property
    def name(self) -> str:
        return f"{self.record.namespace}/{self.record.name}"


class PlannedArrival:
    """An arrival with the templates of its pods, which all its runs share.

    `number`: its place among the arrivals. `times`: the number of times it has arrived.
    """

    def __init__(self, number: int, arrival: Arrival) -> None:
        self.arrival = arrival
        self.times = 0
        self.number = number
        self._groups = [
            (group, Template(group.pod, arrival.namespace, group.selector, group.claims)) for group in arrival.groups
        ]
        self._own_labels = [_own_labels(group) if arrival.count > 1 else () for group in arrival.groups]

    def interval(self, seed: int) -> Milliseconds:
        """Draw the time from its latest time to the next one."""
        return self.arrival.every.quantile(uniform_fraction(seed, "interval", f"{self.number}/{self.times}"))

    def arrive(self) -> Sequence[Run]:
        """Return the runs of its next time."""
        self.times += 1
        return [
            Run(
                template=self._labelled(template, labels, f"{group.name}-{self.times}") if labels else template,
                base=group.name if self.arrival.count == 1 else f"{group.name}-{self.times}",
                arrival=self.number,
                run_for=self.arrival.run_for,
                controlled=group.controlled,
                scaled=group.selector is not None,
                parallel=min(group.parallel, group.total),
                total=group.total,
            )
            for (group, template), labels in zip(self._groups, self._own_labels, strict=True)
        ]

    @staticmethod
    def _labelled(template: Template, labels: Sequence[str], name: str) -> Template:
        """Return the template of an object with another name, by which its pods select each other."""
        metadata = as_mapping(template.pod.get("metadata"))
        renamed: dict[str, Json] = {**as_mapping(metadata.get("labels")), **dict.fromkeys(labels, name)}
        return replace(template, pod={**template.pod, "metadata": {**metadata, "labels": renamed}})


def _own_labels(group: PodGroup) -> Sequence[str]:
    """Return the labels with the name of the object that makes the pods, if the pods select each other by one."""
    spec = as_mapping(group.pod.get("spec"))
    text = str(spec.get("affinity")) + str(spec.get("topologySpreadConstraints"))
    labels = as_mapping(as_mapping(group.pod.get("metadata")).get("labels"))
    own = [key for key, value in labels.items() if value == group.name]
    return own if any(key in text for key in own) else ()


STAYING_KINDS = frozenset({"DaemonSet", "Node"})
"""Kinds of controllers whose pods stay on drained nodes and do not end; a static pod is controlled by its Node."""

SCALED_KINDS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Kinds of controllers whose scale PodDisruptionBudgets count."""


class ExistingPods:
    """Templates of the pods that exist at the beginning. Equal pods share one."""

    def __init__(self) -> None:
        self._templates: dict[bytes, Template] = {}

    def run(self, pod: PodObject, name: str, namespace: str, run_for: Distribution | None) -> Run:
        """Return the run of one pod, as its controller recreates it.

        The template is derived from the pod, since the objects of controllers are not read.
        """
        owner = controller_reference(pod)
        stays = owner is not None and text_member(owner, "kind") in STAYING_KINDS
        own = pod.metadata
        metadata: dict[str, Json] = {key: own[key] for key in ("labels", "annotations") if key in own}
        if owner is not None:
            metadata["generateName"] = f"{text_member(owner, 'name')}-"
            if text_member(owner, "kind") == "StatefulSet":  # which names its pods
                metadata["name"] = f"{text_member(owner, 'name')}-0"
        spec: Json = {key: value for key, value in pod.spec.items() if key != "nodeName"}
        raw: dict[str, Json] = {"metadata": metadata, "spec": spec}
        key = marshal_value([namespace, raw])
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = Template(with_default_requests(raw), namespace)
        return Run(
            template=template,
            base=name,
            arrival=None,
            run_for=None if stays else run_for,
            controlled=owner is not None,
            scaled=owner is not None and text_member(owner, "kind") in SCALED_KINDS,
            drained=not stays,
            created=1,
        )
