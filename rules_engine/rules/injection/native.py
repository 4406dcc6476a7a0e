"""A ResourceInjection as a mutation of the API server, in exact integers of the smallest unit of each resource."""

from collections.abc import Iterator, Sequence
from math import gcd, lcm

from rules_engine.cluster.creation.limit_range import LIMIT_RANGER_ANNOTATION
from rules_engine.model.kubernetes.quantity import NANOS, Format
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from rules_engine.rules.injection.evaluation import SHARED_UNITS
from rules_engine.rules.injection.value import InitContainers, InjectionEntry, OnConflict, ResourceInjection
from rules_engine.rules.native.cel_text import (
    CONTAINERS,
    HAS_INIT_CONTAINERS,
    any_of,
    cel_list,
    cel_literal,
    match_conditions,
    names_one_of,
    requested_float,
)
from rules_engine.rules.native.mutation import (
    DISPLAY,
    HAS_SKIP,
    Draft,
    escape_key,
    join_operands,
    malformed,
    patch,
    reads_changes,
    requested,
    skip_warning,
    too_many,
)
from rules_engine.rules.native.policy import NativeCheck, PolicyScope, StaysError, Translation, variables_of
from rules_engine.rules.overlap import may_share_pods
from rules_engine.rules.rule_set.compiled import CompiledRule

MAX_UNITS = 10**15
"""Largest coefficient, in the smallest unit: CEL's integers hold it for 9,000 GPUs."""

_SET_BY_CLUSTER = f"""// What LimitRanger set counts as not set: 'cpu, memory request for container main', …
object.metadata.?annotations[?{cel_literal(LIMIT_RANGER_ANNOTATION)}].orValue('')
  .replace('LimitRanger plugin set: ', '').split('; ')"""

MAX_DENOMINATOR = 1000
"""Largest denominator of a coefficient in the smallest unit: amounts of a pod are multiplied by it."""


def translate_injection(injection: CompiledRule[ResourceInjection], scope: PolicyScope) -> Translation:
    """Translate an injection. Raises StaysError."""
    rule = injection.rule
    injections = [each for each in scope.rules if isinstance(each, ResourceInjection)]
    for other in injections:
        if other is not rule and (_changes_match(rule, other) or _changes_match(other, rule)):
            raise StaysError(f"{rule.id} or {other.id} writes an annotation by which the other one matches pods")
    rivals = [each for each in injections if may_share_pods(each, rule)]
    for other in rivals:
        if other.gpu_resource != rule.gpu_resource:
            reason = f"{other.id} injects for {other.gpu_resource}: a pod that requests both is denied"
            raise StaysError(reason, rule.origin.get(("spec", "gpuResource")))
    if len(rivals) > 1 and reads_changes(injection):
        raise StaysError("it matches or reads what another injection for the same pods may change")
    earlier = [each for each in scope.before if each.rule in rivals]
    for each in earlier:
        if each.rule.expressions and not scope.strict:
            raise StaysError(f"expressions of {each.rule.id} may fail, and then this injection decides")
    draft, table = Draft(injection, scope), _Coefficients(rule)
    # With && and ||, an operand would hide an error of the rule's conditions.
    chosen = [*(f"!variables.{each.prefix}applicable" for each in earlier), f"$entry in {table.filled}"]
    decides = f"($applicable ? {' && '.join(chosen)} : false)"
    _choose(rule, scope, draft, table, decides)
    _calculate(rule, draft, table)
    return Translation(
        rule=rule,
        prefix=scope.prefix,
        variables=draft.variables,
        mutation=_mutation(rule, draft, table),
        changes=join_operands(_may_inject(rule)),
        checks=tuple(_checks(rule, draft, decides)) if table.filled else (),
        denies=join_operands([*_may_inject(rule), *_may_deny(rule, table)]),
        warnings=tuple(_warnings(rule, draft, decides)) if table.filled else (),
        warns=any_of([HAS_SKIP, *[HAS_INIT_CONTAINERS] * (rule.init_containers is InitContainers.IGNORE)]),
        check_variables=variables_of(earlier),
        allocatable=frozenset(draft.expressions.allocatable),
        total=frozenset(draft.expressions.total),
    )


def _may_inject(rule: ResourceInjection) -> Iterator[str]:
    """Yield the conditions for pods that the injection may change or deny, or for which an expression may fail.

    Another webhook may add the type of cards. The API server evaluates a policy again only if it matched before.
    """
    yield from match_conditions(rule.match)
    yield names_one_of([rule.gpu_resource])


def _may_deny(rule: ResourceInjection, table: "_Coefficients") -> Iterator[str]:
    """Yield the condition for pods that the injection may deny: others request as much as it gives for one GPU."""
    if rule.expressions:
        return
    if rule.gpu_type is not None:
        yield _typed(rule)
    conditions = [HAS_INIT_CONTAINERS] * (rule.init_containers is not InitContainers.INJECT)
    if rule.on_conflict is OnConflict.OVERWRITE:
        conditions.append("has(object.spec.resources)")
    others = f"{CONTAINERS}.filter(c, {requested_float(cel_literal(rule.gpu_resource))} == 0.0)"
    for name in filter(SHARED_UNITS.__contains__, table.names):
        rates = [entry.coefficients[name].nanos / NANOS for entry in table.entries if name in entry.coefficients]
        least = format(min(rates) * 0.999, "f")  # Doubles are rounded.
        conditions.append(f"{others}.map(c, {requested_float(cel_literal(name))}).sum() >= {least}")
    yield f"({any_of(conditions)})"


def _typed(rule: ResourceInjection) -> str:
    annotation = f"object.metadata.?annotations[?{cel_literal(rule.gpu_type_annotation)}].orValue('')"
    return "true" if rule.gpu_type is None else f"{annotation} == {cel_literal(rule.gpu_type)}"


def _changes_match(rule: ResourceInjection, other: ResourceInjection) -> bool:
    """Return True if the annotations that a rule writes may change whether another rule applies."""
    return any(other.gpu_type_annotation in each.annotations for each in (rule.default, *rule.namespaces.values()))


class _Coefficients:
    """The coefficients of an injection as fractions of integers, in the smallest unit of each resource.

    `entries`: the default, then the namespaces' entries. `rates`: numerators by entry and name, -1 for none;
    `denominators`: by name, the same for all entries. Raises StaysError.
    """

    def __init__(self, rule: ResourceInjection) -> None:
        self.entries = [rule.default, *rule.namespaces.values()]
        self.names = [*dict.fromkeys(name for entry in self.entries for name in entry.coefficients)]
        if rule.on_conflict is OnConflict.KEEP and any(name.startswith("hugepages-") for name in self.names):
            raise StaysError("onConflict: Keep of huge pages depends on the pod level", rule.default.location)
        units = [SHARED_UNITS[name].nanos if name in SHARED_UNITS else NANOS for name in self.names]
        self.denominators = [
            lcm(1, *(unit // gcd(entry.coefficients[name].nanos, unit) for entry in self._with(name)))
            for name, unit in zip(self.names, units, strict=True)
        ]
        self.rates = [
            [
                entry.coefficients[name].nanos * denominator // unit if name in entry.coefficients else -1
                for name, unit, denominator in zip(self.names, units, self.denominators, strict=True)
            ]
            for entry in self.entries
        ]
        for index, name in enumerate(self.names):
            if max(rates[index] for rates in self.rates) > MAX_UNITS or self.denominators[index] > MAX_DENOMINATOR:
                entry = self._with(name)[0]
                place = entry.origin.get(("coefficients", name), entry.location)
                raise StaysError(f"coefficients.{name} is too large or too fine for CEL's integers", place)

    def _with(self, name: str) -> Sequence[InjectionEntry]:
        return [entry for entry in self.entries if name in entry.coefficients]

    @property
    def filled(self) -> list[int]:
        """The numbers of the entries that inject anything."""
        return [index for index, entry in enumerate(self.entries) if entry]

    @property
    def shared(self) -> str:
        """The names that containers share, as a list of bool."""
        return f"[{', '.join(str(name in SHARED_UNITS).lower() for name in self.names)}]"

    @property
    def suffixes(self) -> str:
        return cel_list(map(self._suffix, self.names))

    def _suffix(self, name: str) -> str:
        formats = {entry.coefficients[name].format for entry in self._with(name)}
        return "m" if name == "cpu" else "Ki" if formats == {Format.BINARY_SI} else ""


def _choose(rule: ResourceInjection, scope: PolicyScope, draft: Draft, table: _Coefficients, decides: str) -> None:
    """Define the entry, the containers with GPUs, and whether anything is injected."""
    gpu = cel_literal(rule.gpu_resource)
    names = "".join(f"request.namespace == {cel_literal(name)} ? {i} : " for i, name in enumerate(rule.namespaces, 1))
    draft.define("entry", f"{names}0")
    draft.define_literal("typed", _typed(rule))
    amount = f"quantity(c.requests[?{gpu}].or(c.limits[?{gpu}]).orValue('0'))"
    draft.define(
        "applicable",
        f"""!$applies ? false : !($typed && {requested(gpu)}) ? false :
$entry in {table.filled} && variables.containers.size() > {MAX_CONTAINERS} ? {too_many(rule, scope)} :
variables.containers.exists(c, sign({amount}) != 0)""",
    )
    serves = "true" if rule.init_containers is InitContainers.INJECT else "!c.init"
    draft.define("served", f"variables.containers.transformList(i, c, {serves} && sign({amount}) != 0, i)")
    draft.define("passed", f"variables.containers.filter(c, !({serves}) && sign({amount}) != 0)")
    denied = " && $passed.size() == 0" * (rule.init_containers is InitContainers.DENY)
    draft.define(
        "injects",
        f"{decides} ? $served.size() > 0{denied} &&\n"
        f"!variables.containers.exists(c, {serves} && ({malformed(gpu)})) : false",
    )
    draft.define("gpus", f"variables.containers.map(c, {serves} ? {amount}.asInteger() : 0)")


def _calculate(rule: ResourceInjection, draft: Draft, table: _Coefficients) -> None:
    """Define the amounts to write: in thousandths of cpu, in bytes, or in whole numbers."""
    size, keeps = len(table.names), rule.on_conflict is OnConflict.KEEP
    over = f"{table.denominators}[k]"
    draft.define("names", cel_list(table.names))
    draft.define("keys", cel_list(map(escape_key, table.names)))
    level = "['requests', 'limits'].exists(s, $names[k] in object.spec.?resources[?s].orValue({}))"
    kept = f".transformList(k, rate, {level} ? -1 : rate)" * keeps
    draft.define(
        "rates", f"// For each GPU, times {table.denominators}; below 0: not injected.\n{table.rates}[$entry]{kept}"
    )
    draft.define("total", "$served.filter(i, !variables.containers[i].ends).map(i, $gpus[i]).sum()")
    draft.define(
        "own",
        f"""// Amounts as they are, rounded up.
variables.containers.map(c, lists.range({size}).map(k,
  [c.requests[?$names[k]].or(c.limits[?$names[k]]).orValue('0')].map(text, {_units("text")})[0]))""",
    )
    draft.define(
        "others",
        f"""lists.range({size}).map(k, lists.range(variables.containers.size())
  .filter(i, !variables.containers[i].ends && !(i in $served)).map(i, $own[i][k]).sum())""",
    )
    if rule.on_conflict is not OnConflict.OVERWRITE:
        draft.define("set", _SET_BY_CLUSTER)
    owner = "' for ' + (c.init ? 'init ' : '') + 'container ' + c.name"
    recorded = f"part.endsWith(' ' + s + {owner}) && $names[k] in part.split(' ' + s + {owner})[0].split(', ')"
    named = f"""['limit', 'request'].filter(s, $names[k] in c[s + 's'] &&
    !$set.exists(part, {recorded})).map(s, c[s + 's'])"""
    # GPU containers share what the others leave of a shared resource; of any other, each gets its own amount.
    amount = f"""{table.shared}[k] && $total > 0 && !c.ends ?
    ($rates[k] * $total - $others[k] * {over}) / ({over} * $total) * $gpus[i] : $rates[k] * $gpus[i] / {over}"""
    if rule.on_conflict is OnConflict.RAISE:
        amount = f"({named}.map(a, a[$names[k]]).map(text, {_units('text')}) + [{amount}]).max()"
    skipped = f" || {named}.size() > 0" * keeps
    draft.define(
        "injected",
        f"""// By container and resource; below 0: not written.
variables.containers.transformList(i, c, lists.range({size}).map(k, !(i in $served) || $rates[k] < 0{skipped} ? -1 :
  ({amount})))""",
    )

    def aggregate(own: str) -> str:
        return f"""lists.range({size}).map(k, [$injected.transformList(i, row, row[k] < 0 ? {own} : row[k])].map(all,
  variables.points.filter(p, p == all.size() || all[p] > 0).map(p, (p < all.size() ? all[p] : 0) +
    all.transformList(i, a, i < p && !variables.containers[i].ends, a).sum()).max())[0])"""

    # Multiplied rather than divided, so that nothing is rounded.
    exceeds = f"$others[k] * {over} > $rates[k] * $total"
    if not keeps:
        draft.define(
            "sums",
            f"// What the containers add up to afterwards, for amounts of the pod level.\n{aggregate('$own[i][k]')}",
        )
    if rule.on_conflict is OnConflict.OVERWRITE:
        given = aggregate("(variables.containers[i].ends ? 0 : $own[i][k])")
        draft.define("given", f"// The same without init containers that get nothing.\n{given}")
        resources = "object.spec.?resources"
        text = f"{resources}.requests[?$names[k]].or({resources}.limits[?$names[k]])"
        exceeds = f"""({exceeds} || {text}.hasValue() && [{text}.value()].exists(text,
    [{_units("text")}, $sums[k]].max() * {over} > [$rates[k] * $total, $given[k] * {over}].max()))"""
    draft.define(
        "short",
        f"lists.range({size}).filter(k, {table.shared}[k] && $rates[k] >= 0 && $total > 0 &&\n  {exceeds})",
    )
    entries = [
        ", ".join(
            cel_list([key, f"/metadata/annotations/{escape_key(key)}", text]) for key, text in item.annotations.items()
        )
        for item in table.entries
    ]
    if any(entries):
        draft.define_literal("annotations", f"[{', '.join(f'[{each}]' for each in entries)}]")


def _units(text: str) -> str:
    """Return a template of the resource k's amount in its smallest unit, rounded up.

    The API server writes fractions with m, u or n, or with an exponent. In its CEL, 100Ti is no integer, and 99Ti is.
    """
    scale = "($names[k] == 'cpu' ? 1000 : 1)"
    parts = (
        f"({text}.endsWith('m') || {text}.endsWith('e-3') ? 1000 :"
        f" {text}.endsWith('u') || {text}.endsWith('e-6') ? 1000000 : 1000000000)"
    )
    return f"""(quantity({text}).isInteger() ? quantity({text}).asInteger() * {scale} :
    !{text}.matches('[mun]$|e-') ? int(quantity({text}).asApproximateFloat()) * {scale} :
    (int({text}.find('^-?[0-9]+')) * {scale} + {parts} - 1) / {parts})"""


def _mutation(rule: ResourceInjection, draft: Draft, table: _Coefficients) -> str:
    def text(amount: str) -> str:
        """Return the text of an amount of the resource k; the API server makes it canonical."""
        suffix = f"{table.suffixes}[k]"
        return f"""({suffix} != 'Ki' ? string({amount}) + {suffix} :
    {amount} % 1024 == 0 ? string({amount} / 1024) + 'Ki' : string({amount}))"""

    size, keeps = len(table.names), rule.on_conflict is OnConflict.KEEP
    written = f"lists.range({size}).filter(k, $injected[i][k] >= 0)"
    sections = "['limits', 'requests'].map(s, "
    operations = [
        f"{sections}variables.containers.transformList(i, c, c[s].size() == 0 && {written}.size() > 0,\n  "
        + patch("add", "c.path + s", "{}")
        + ")).flatten()",
        f"{sections}variables.containers.transformList(i, c, {written}.map(k,\n  "
        + patch("add", "c.path + s + '/' + $keys[k]", text("$injected[i][k]"))
        + ")).flatten()).flatten()",
    ]
    if not keeps:
        before = "object.spec.?resources[?s][?$names[k]]"
        operations.append(
            f"{sections}lists.range({size}).filter(k, $rates[k] >= 0 && {before}.hasValue() &&\n"
            f"  [{before}.value()].exists(text, {_units('text')} < $sums[k])).map(k,\n  "
            + patch("add", "'/spec/resources/' + s + '/' + $keys[k]", text("$sums[k]"))
            + ")).flatten()"
        )
    if any(entry.annotations for entry in table.entries):
        present = ".filter(a, !(a[0] in object.metadata.?annotations.orValue({})))"
        chosen = "$annotations[$entry]" + present * (rule.on_conflict is not OnConflict.OVERWRITE)
        operations.append(f"{chosen}.map(a, {patch('add', 'a[1]', 'a[2]')})")
    nothing = "!$injects ? [] : $short.size() > 0 ? [] :"
    return "\n".join([f"// {rule.id}", draft.text(nothing), draft.text(" +\n".join(operations))])


def _checks(rule: ResourceInjection, draft: Draft, decides: str) -> Iterator[NativeCheck]:
    """Yield the checks that repeat the denials on the final pod: the injection changes nothing that they read."""
    if rule.init_containers is InitContainers.DENY:
        listed = "$passed.map(c, (c.ends ? 'the init container ' : 'the sidecar ') + c.name).join(', ')"
        requests = cel_literal(f" requests {rule.gpu_resource} in ")
        yield NativeCheck(
            expression=draft.text(f"{decides} ? $passed.size() == 0 : true"),
            message=f"{rule.gpu_resource} is requested in init containers (initContainers: Deny)",
            message_expression=draft.text(f"'pod ' + {DISPLAY} + {requests} + {listed} + ' (initContainers: Deny)'"),
            reason="Forbidden",
        )
    listed = "$short.map(k, $names[k]).sort().join(', ')"
    yield NativeCheck(
        expression=draft.text("$injects ? $short.size() == 0 : true"),
        message="the other containers request more than the GPU containers get",
        message_expression=draft.text(f"'pod ' + {DISPLAY} + ' resource ' + {listed} + ' too large'"),
        reason="Forbidden",
    )


def _warnings(rule: ResourceInjection, draft: Draft, decides: str) -> Iterator[NativeCheck]:
    yield skip_warning(rule, draft, decides)
    if rule.init_containers is InitContainers.IGNORE:
        listed = "$passed.map(c, (c.ends ? 'the init container ' : 'the sidecar ') + c.name).join(', ')"
        texts = f"{rule.id} injects nothing into ", f", which requests {rule.gpu_resource} (initContainers: Ignore)"
        before, after = map(cel_literal, texts)
        yield NativeCheck(
            expression=draft.text(f"{decides} ? $passed.size() == 0 : true"),
            message=f"{rule.id} injects nothing into init containers (initContainers: Ignore)",
            message_expression=f"{before} + {draft.text(listed)} + {after}",
        )
