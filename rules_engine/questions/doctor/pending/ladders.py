"""The resources to which the active ladders would move a pending pod."""

from collections.abc import Iterator, Sequence

from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import PodObject
from rules_engine.model.rules.admission import Endpoint, pod_request
from rules_engine.model.rules.decision import EVALUATION_ERROR, Action, Step, resource_of
from rules_engine.model.rules.rule import RuleId
from rules_engine.model.wording import join_names
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.evaluation.rule_reads import RuleReads, missing_members


class ActiveLadders:
    """The active ladders, applied to pods that wait."""

    def __init__(self, rule_set: RuleSet) -> None:
        self._rule_set = rule_set
        self._reads = RuleReads(rule_set)

    def apply(
        self, pod: PodObject, missing: Sequence[str], cluster: Cluster, *, excluded: bool
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Apply the ladders to a pod that waits for the `missing` resources.

        Return evidence of the decisions that they would make now, and the resources that the pod would get. There are
        none if an enforced ladder reads what is not known of the pod. `excluded`: the nodes with these resources
        exclude the pod, so that only a ladder over node pools helps.
        """
        ladders = _relevant_ladders(self._rule_set, missing, excluded=excluded)
        if not ladders:
            return [] if excluded else [f"no active ladder has a rung for {join_names(missing)}"], []
        new_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": pod.get("metadata"), "spec": pod.get("spec")}
        decision = self._rule_set.mutate(pod_request(new_pod, namespace=pod.namespace), cluster)
        steps = [step for step in decision.trace if step.rule in ladders]
        unknown = self._reads.dependent_rules(steps, missing_members(pod))
        lines: list[str] = []
        for step in steps:
            if step.rule in unknown and not step.cluster_unknown:
                lines.append(f"the decision of {step.rule} is not known: it reads {join_names([*unknown[step.rule]])}")
            else:
                lines += _decision_lines(step, missing)
        enforced = [step for step in steps if not step.audit]
        if not decision.allowed or any(step.rule in unknown for step in enforced):
            return lines, []
        moves = (move for step in enforced for move in step.resources)
        resources = [move.to for move in moves if resource_of(move.resource) in missing and move.to is not None]
        return lines, resources


def _relevant_ladders(rule_set: RuleSet, resources: Sequence[str], *, excluded: bool) -> frozenset[RuleId]:
    return frozenset(
        compiled.rule.id
        for compiled in rule_set.rules_at(Endpoint.MUTATE)
        if compiled.rule.interests.moves
        and not (compiled.rule.interests.resources or frozenset()).isdisjoint(resources)
        and (not excluded or any(resource_of(name) != name for name in compiled.rule.rung_names))
    )


def _decision_lines(step: Step, missing: Sequence[str]) -> Iterator[str]:
    verb = "would, if it were enforced," if step.audit else "would"
    if step.reason == EVALUATION_ERROR:
        yield f"{step.rule} was not applied: {step.message}"
    elif step.action is Action.SKIP:
        yield f"{step.rule} {verb} skip the pod: {step.message or step.reason}"
    elif step.action is Action.DENY:
        yield f"{step.rule} {verb} deny the pod: {step.message}"
    else:
        for move in step.resources:
            if resource_of(move.resource) in missing:
                if move.to is not None:
                    does = f"give the pod {move.to} in place of {move.resource}"
                elif move.reason == "placed":
                    does = f"give the pod the pool of {move.resource}"
                else:
                    does = f"keep {move.resource}: {move.reason}"
                yield f"{step.rule} {verb} {does}"
