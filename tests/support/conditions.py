"""Typical match conditions and selectors of rules."""

from rules_engine.model.rules import ConditionKind, LabelRequirement, LabelSelector

CONDITIONS = (
    "object.metadata.?labels.team.orValue('') != 'batch'",
    "has(object.metadata.labels) && 'team' in object.metadata.labels && object.metadata.labels['team'] == 'ml'",
    "object.metadata.labels.team == 'ml'",  # fails on a pod without the label
    "request.namespace == 'ml' // nothing more",
    "variables.team == 'ml'",
    "object.spec.containers.exists(c, c.?resources.?limits.orValue({}).exists(r, r.startsWith('amd.com/')))",
    "object.spec.containers.size() > 1 || int(object.metadata.labels.team) > 1",
)
"""Conditions of rules; some of them can be handed over to the API server."""

SELECTORS = (
    LabelSelector(),
    LabelSelector(),
    LabelSelector((LabelRequirement("team", ConditionKind.IN, ("ml", "")),)),
    LabelSelector((LabelRequirement("team", ConditionKind.NOT_IN, ("ml",)),)),
    LabelSelector((LabelRequirement("team", ConditionKind.EXISTS), LabelRequirement("x'\\/y", ConditionKind.EXISTS))),
    LabelSelector((LabelRequirement("team", ConditionKind.DOES_NOT_EXIST),)),
)

HANDED_OVER = (
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
"""Conditions that can be handed over to the API server: they cannot fail, and cost little."""

TOO_COSTLY = (
    "object.spec.containers.exists(c, object.spec.containers.exists(d, d.?image == c.?image && !has(d.args)))",
    "object.spec.containers.exists(c, object.spec.?volumes.orValue([]).exists(v, !has(v.emptyDir)))",
    "object.spec.containers.exists(c, [object.spec.containers].exists(all, all.exists(d, !has(d.args))))",
    "object.spec.containers.map(c, object.spec.containers).exists(all, all.exists(d, !has(d.args)))",
    "[1, 2].map(n, object.spec.containers).exists(all, all.size() > 1)",
    "object.spec.containers.map(c, [c]).exists(one, one.size() > 1)",
    "object.spec.containers.map(c, c.?image.orValue('')) == object.spec.containers.map(c, c.?image.orValue(''))",
    "object.spec.containers.exists(c, c.?args.orValue([]).exists(a, a in c.?command.orValue([])))",
    "object.spec.containers.exists(c, 'a' in object.spec.?imagePullSecrets.orValue([]).map(s, s.?name.orValue('')))",
    "object.metadata.?annotations.a.orValue('').contains(object.metadata.?annotations.b.orValue(''))",
    "object.spec.containers.exists(c, object.metadata.?annotations.a.orValue('').contains('nvidia'))",
    "object.spec.containers.exists(c, object.metadata.?annotations.a.orValue('') + 'x' == 'ax')",
    "object.spec.containers.exists_one(c, request.namespace.contains(c.?image.orValue('')))",
    "object.spec.containers.all(c, c.?resources.limits.orValue({}).all(r, r in c.?resources.requests.orValue({})))",
    "object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == 'nvidia.com/gpu')",
    "object.spec.containers.exists(c, c.?args.orValue([]).exists(a, a == '--gpu'))",
    "object.spec.containers.exists(c, c.?env.orValue([]).exists(e, e.?value.orValue('') == 'gpu'))",
    " || ".join(["object.spec.containers.exists(c, has(c.lifecycle))"] * 6),
    "[1, 2].exists(a, " * 20 + "true" + ")" * 20,
)
"""Conditions that cannot fail but may exceed the cost limit of the API server."""
