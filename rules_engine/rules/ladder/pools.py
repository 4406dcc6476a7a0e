"""Node pools of a pod and of rungs: the pool that a pod selects, and the edits that move it to another one."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rules_engine.model.json.edits import Edits, JsonText
from rules_engine.model.json.lenient import as_mapping, text_member
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath, read_list, read_mapping
from rules_engine.model.kubernetes.placement import TERM_MEMBERS, NodeExpression, NodeTerm, Placement
from rules_engine.model.kubernetes.pod import SPEC, Pod
from rules_engine.rules.ladder.value import PoolLabels, Rung
from rules_engine.rules.pod_members.value import toleration_text, tolerations_in
from rules_engine.rules.pod_members.writing import MemberWriter, Present

NODE_SELECTOR: JsonPath = (*SPEC, "nodeSelector")
TERMS: JsonPath = (
    *SPEC, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
)  # fmt: skip


class PodPool(Struct, frozen=True, kw_only=True):
    """A pod's choice of a pool by the keys of a ladder.

    `labels`: the value of each key that the pod mentions, None if it excludes nodes with the label. `expressions`: the
    expressions of required node affinity with one of the keys, by the path of each; all terms select the same values.
    `problem`: the reason why the choice is not clear, or "".
    """

    pod: Pod
    placement: Placement
    labels: Mapping[str, str | None]
    expressions: Mapping[JsonPath, NodeExpression]
    problem: str = ""

    @classmethod
    def of(cls, pod: Pod, placement: Placement, keys: Sequence[str]) -> "PodPool":
        selected = {key: value for key, value in placement.node_selector if key in keys}
        terms = [
            [(index, expression) for index, expression in enumerate(term.expressions) if expression.key in keys]
            for term in placement.terms or ()
        ]
        expressions: dict[JsonPath, NodeExpression] = {}
        if any(terms) and not placement.node_name:
            raw_terms = enumerate(read_list(_value_at(pod, TERMS), TERMS))
            # The placement is without empty terms, which match no node.
            places = [place for place, raw in raw_terms if any(map(as_mapping(raw).get, TERM_MEMBERS))]
            expressions = {
                (*TERMS, place, "matchExpressions", index): expression
                for place, mentioned in zip(places, terms, strict=True)
                for index, expression in mentioned
            }
        labels: dict[str, str | None] = {}
        problem = "the pod names its node" if placement.node_name else ""
        for key in keys:
            own = frozenset[str | None]({selected[key]} if key in selected else ())
            # Terms are alternatives, so each must allow the same single value.
            choices = {own.union(*[_values(each) for _, each in term if each.key == key]) for term in terms or [[]]}
            values, *others = choices
            if others or len(values) > 1:
                problem = problem or f"the pod does not select exactly one value of {key}"
            elif values:
                (labels[key],) = values
        return cls(pod=pod, placement=placement, labels=labels, expressions=expressions, problem=problem)

    def edits_to(self, rungs: Sequence[Rung]) -> Edits:
        """Return the edits that move the pod to rungs of one pool, without its resources."""
        changed, node_selector = self._changes(rungs[0].pool)
        members = {
            key: {"operator": moved.operator, "values": JsonText.of([*moved.values]) if moved.values else None}
            for key, moved in changed.items()
        }
        edits: dict[JsonPath, Mapping[str, str | None]] = {
            path: members[expression.key] for path, expression in self.expressions.items() if expression.key in members
        }
        writer = MemberWriter(read_mapping(self.pod.raw, ()))
        for member in (each for rung in rungs for each in rung.place):
            if writer.compare(member.field, member.name, member.value) is not Present.EQUAL:
                writer.write(member.field, member.name, member.value)
        own: Edits = {NODE_SELECTOR: node_selector} if node_selector else {}
        return {**edits, **own, **writer.edits}

    def placement_on(self, rungs: Sequence[Rung]) -> Placement:
        """Return the placement of the pod with `edits_to`, without reading it again."""
        changed, node_selector = self._changes(rungs[0].pool)
        selected = {**dict(self.placement.node_selector), **node_selector}
        terms = self.placement.terms
        if terms and self.expressions:
            terms = tuple(
                NodeTerm(tuple(changed.get(each.key, each) for each in term.expressions), term.fields) for term in terms
            )
        added = tuple(toleration for rung in rungs for toleration in tolerations_in(rung.place))
        return replace(
            self.placement,
            node_selector=tuple((key, value) for key, value in selected.items() if value is not None),
            terms=terms,
            tolerations=(*self.placement.tolerations, *added),
        )

    def _changes(self, pool: PoolLabels) -> tuple[Mapping[str, NodeExpression], Mapping[str, str | None]]:
        """Return an expression for each label of a pool that the pod does not select, and its node selector's edits."""
        changed = {
            key: NodeExpression(key, "DoesNotExist", ()) if value is None else NodeExpression(key, "In", (value,))
            for key, value in pool
            if self.labels.get(key) != value
        }
        selected = {key for key, _ in self.placement.node_selector}
        placed = {expression.key for expression in self.expressions.values()}
        return changed, {key: value for key, value in pool if key in changed and (key in selected or key not in placed)}

    @property
    def runtime_class(self) -> str:
        return text_member(as_mapping(_value_at(self.pod, SPEC)), "runtimeClassName")


def _values(expression: NodeExpression) -> frozenset[str | None]:
    """Return the values of a label that an expression allows: None without the label; two if it names no value."""
    values_by_operator = {"In": expression.distinct, "DoesNotExist": frozenset({None})}
    return values_by_operator.get(expression.operator) or frozenset({None, ""})


def _value_at(pod: Pod, path: JsonPath) -> Json:
    """Return a value of the edited pod, whose placement was read before, so that it has the right types."""
    value = pod.raw
    for depth, name in enumerate(path):
        value = read_mapping(value, path[:depth]).get(str(name))
    return value


def pool_text(pool: PoolLabels) -> str:
    """Return a pool in the syntax of `kubectl get --selector`."""
    return ",".join(f"!{key}" if value is None else f"{key}={value}" for key, value in pool)


def pool_words(rung: Rung) -> str:
    """Return the labels of a rung's pool, and the tolerations that its pods get."""
    return ", ".join(
        [pool_text(rung.pool), *(f"toleration {toleration_text(each)}" for each in tolerations_in(rung.place))]
    )


def select_pool(rung: Rung, pod: Pod) -> Edits:
    """Return the edits by which a pod selects a rung's pool."""
    return PodPool.of(pod, pod.placement, [key for key, _ in rung.pool]).edits_to([rung]) if rung.pool else {}
