"""Typical match conditions and selectors of rules."""

from rules_engine.cel import Environment, types
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

SOUND_CONDITIONS = (
    *(CONDITIONS[index] for index in (0, 1, 3, 5)),
    "true",
    "'a' < 'b' && 1 >= -1",
    "has(object.metadata.labels) && has(object.metadata.labels.team) && object.metadata.labels.team == 'ml'",
    "!has(object.metadata.labels) || !('team' in object.metadata.labels) || object.metadata.labels.team != 'x'",
    "has(object.metadata.labels) ? 'team' in object.metadata.labels : false",
    "!(!has(object.metadata.labels) || size(object.metadata.labels) == 0) && object.metadata.labels.size() > 0",
    "object.metadata.?annotations[?'a/b'].orValue('') in ['x', 'y']",
    "object.metadata.?annotations.hasValue()",
    "object.spec.containers.filter(c, c.?image.orValue('') == 'nvidia.com/gpu').size() > 0",
    "object.spec.containers.map(c, c.?image.orValue('')).exists_one(k, k == 'a')",
    "['a', 'b'].exists(a, ['b', 'c'].exists(b, object.metadata.?labels[?a].orValue('') == b))",
    "object.spec.containers.exists(c, 'a/b' in c.?resources.requests.orValue({}))",
    "object.metadata.?annotations.orValue({}).exists(a, a.startsWith('nvidia.com/'))",
    "object.metadata.?annotations.a.orValue('').contains('nvidia.com/')",
    "object.spec.containers.exists(c, c.?image.orValue('').contains(request.namespace == '' ? 'nvidia' : 'gpu'))",
    "object.metadata.?annotations.a.orValue('') + object.metadata.?annotations.b.orValue('') != 'x'",
    "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, !has(c.securityContext))",
    "request.operation + request.namespace != 'x'",
    f"{'(' * 99}'(((' + r'\\' != \"(((\"{')' * 99} // (((",
    f"{'!(' * 90}object.metadata.?labels.team.orValue('') == '('{')' * 90}",
    " + ".join(["'a'"] * 90) + " != ''",
    " || ".join(f"request.namespace == 'n{number}'" for number in range(400)),
    "".join(f"request.namespace == 'n{number}' ? true : " for number in range(90)) + "false",
)
"""Conditions that have a value for every pod: none fails."""

KUBERNETES = Environment({"object": types.DYN, "oldObject": types.DYN, "request": types.DYN})
"""Variables of a webhook's match conditions, with the types that the API server gives them."""
