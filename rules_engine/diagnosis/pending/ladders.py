"""The resources to which the active ladders would move a pending pod."""

from collections.abc import Iterator, Mapping, Sequence

from rules_engine.cel.program import constant_texts
from rules_engine.diagnosis.wording import join_names, shell_command
from rules_engine.evaluation import RuleSet, mutate
from rules_engine.evaluation.rule_set.compiled import CompiledRule
from rules_engine.model.json.lenient import controller_reference
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.cluster_objects import PodObject
from rules_engine.model.rules.admission import Endpoint, pod_request
from rules_engine.model.rules.decision import EVALUATION_ERROR, Action, Step, resource_of
from rules_engine.model.rules.finding import Remedy, Risk
from rules_engine.model.rules.rule import Rule, RuleId


def apply_ladders(
    rule_set: RuleSet, pod: PodObject, missing: Sequence[str], cluster: Cluster, *, excluded: bool
) -> tuple[Sequence[str], Sequence[str]]:
    """Apply the active ladders to a pod that waits for the `missing` resources.

    Return evidence of their decisions if the pod were created now, and the resources that it would get. `excluded`: the
    nodes with these resources exclude the pod, so that only a ladder over node pools helps.
    """
    ladders = _relevant_ladders(rule_set, missing, excluded=excluded)
    if not ladders:
        return [] if excluded else [f"no active ladder has a rung for {join_names(missing)}"], []
    new_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": pod.get("metadata"), "spec": pod.get("spec")}
    decision = mutate(rule_set, pod_request(new_pod, namespace=pod.namespace), cluster)
    steps = [step for step in decision.trace if step.rule in ladders and not ladders[step.rule]]
    lines = [f"{rule} was not evaluated: it reads {inputs}" for rule, inputs in ladders.items() if inputs]
    lines += [line for step in steps for line in _decision_lines(step, missing)]
    resources = [
        move.to
        for step in steps
        if decision.allowed and not step.audit
        for move in step.resources
        if resource_of(move.resource) in missing and move.to is not None
    ]
    return lines, resources


def recreation_remedy(pod: PodObject, resources: Sequence[str]) -> Remedy:
    """Return the remedy to create a pod again, which then gets other resources."""
    text = f"Create the pod again: the active ladders then give it {join_names(resources)}"
    if controller_reference(pod) is None:
        return Remedy(text=f"{text}.", risk=Risk.MEDIUM)
    line = shell_command("kubectl", "delete", "pod", "-n", pod.namespace, pod.name)
    return Remedy(text=f"{text}; its controller does so when it is deleted.", command=line, risk=Risk.MEDIUM)


def _relevant_ladders(rule_set: RuleSet, resources: Sequence[str], *, excluded: bool) -> Mapping[RuleId, str]:
    """Return the ladders with a rung for one of the resources, each with the unknown inputs that it reads, or ""."""
    return {
        compiled.rule.id: _unknown_inputs(compiled)
        for compiled in rule_set.rules_at(Endpoint.MUTATE)
        if compiled.rule.interests.moves
        and not (compiled.rule.interests.resources or frozenset()).isdisjoint(resources)
        and (not excluded or any(resource_of(name) != name for name in compiled.rule.rung_names))
    }


def _unknown_inputs(ladder: CompiledRule[Rule]) -> str:
    """Return words for the inputs of a ladder that a diagnosis does not know, or ""."""
    read = {text for program in ladder.programs for text in constant_texts(program.checked.expression)}
    if "envFrom" in read or ("env" in read and not read.isdisjoint(("value", "valueFrom"))):
        return "values of environment variables"
    return "the user of the request" if "userInfo" in read else ""


def _decision_lines(step: Step, missing: Sequence[str]) -> Iterator[str]:
    verb = "would, if it were enforced," if step.audit else "would"
    if step.reason == EVALUATION_ERROR:
        # The diagnosis may be the cause, since its objects have no values of environment variables.
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
