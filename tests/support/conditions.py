"""Typical match conditions and selectors of rules."""

from rules_engine.language.cel import Environment, types
from rules_engine.model.rules.rule import ConditionKind, LabelRequirement, LabelSelector

CONDITIONS = (
    "object.metadata.?labels.team.orValue('') != 'batch'",
    "has(object.metadata.labels) && 'team' in object.metadata.labels && object.metadata.labels['team'] == 'ml'",
    "object.metadata.labels.team == 'ml'",  # fails on a pod without the label
    "request.namespace == 'ml' // nothing more",
    "variables.team == 'ml'",
    "object.spec.containers.exists(c, c.?resources.?limits.orValue({}).exists(r, r.startsWith('amd.com/')))",
    "object.spec.containers.size() > 1 || int(object.metadata.labels.team) > 1",
)
"""Match conditions of rules; some fail for some pods."""

SELECTORS = (
    LabelSelector(),
    LabelSelector(),
    LabelSelector((LabelRequirement("team", ConditionKind.IN, ("ml", "")),)),
    LabelSelector((LabelRequirement("team", ConditionKind.NOT_IN, ("ml",)),)),
    LabelSelector((LabelRequirement("team", ConditionKind.EXISTS), LabelRequirement("x'\\/y", ConditionKind.EXISTS))),
    LabelSelector((LabelRequirement("team", ConditionKind.DOES_NOT_EXIST),)),
)

KUBERNETES = Environment({"object": types.DYN, "oldObject": types.DYN, "request": types.DYN})
"""Variables of a webhook's match conditions, with the types that the API server gives them."""
