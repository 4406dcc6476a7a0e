"""A ladder as a mutation of the API server, with the offers of nodes as parameter."""

from collections.abc import Sequence
from typing import TypeAlias

from rules_engine.accelerators.resources import short_name
from rules_engine.cluster.nodes import Offered, is_extended_resource
from rules_engine.model.rules.rule import FailurePolicy
from rules_engine.rules.evaluation.applicability import MAX_CONTAINERS
from rules_engine.rules.ladder.evaluation import CompiledLadder
from rules_engine.rules.ladder.value import Counts, Direction, FallbackLadder, WhenExhausted
from rules_engine.rules.native.cel_text import (
    CONTAINERS,
    any_of,
    cel_list,
    cel_literal,
    grouped,
    match_conditions,
    names_one_of,
    namespace_conditions,
    unserved,
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

MAX_RUNGS = 10
"""Rungs whose costs a real API server accepts (1,000,000 for a variable, 10,000,000 for a mutation) for a pod of
MAX_CONTAINERS, half of them sidecars, that all request every rung; with 16 rungs they exceed it."""

_AMOUNT = "quantity(c.limits[?r].or(c.requests[?r]).orValue('0')).asInteger()"

Earlier: TypeAlias = Sequence[tuple[Translation, FallbackLadder]]
"""Exported ladders before one that decide some of its resources."""


def translate_ladder(ladder: CompiledLadder, scope: PolicyScope) -> Translation:
    """Translate a ladder. Raises StaysError."""
    rule, earlier = ladder.rule, _earlier(ladder.rule, scope)
    histories = (key for each in scope.rules if isinstance(each, FallbackLadder) for key in each.histories)
    _check_ladder(ladder, earlier)
    draft, changes, other = Draft(ladder, scope), _may_change(rule), _other_resource(rule, scope)
    _count(rule, scope, draft, earlier, other)
    _decide(ladder, draft, earlier)
    _change(rule, draft)
    denies = rule.when_exhausted is WhenExhausted.DENY
    names_other = f"{CONTAINERS}.exists(c, c.?resources.requests.orValue({{}}).exists(r, {other}))"
    return Translation(
        rule=rule,
        prefix=scope.prefix,
        variables=draft.variables,
        mutation=_mutation(rule, draft),
        changes=changes,
        checks=(_exhausted_check(draft),) if denies else (),
        denies=changes,
        warnings=(
            skip_warning(rule, draft, "$applies && $undecided.size() > 0"),
            NativeCheck(
                expression=draft.text("!$applies || $undecided.size() == 0 || params.spec.known == true"),
                message=f"{rule.id} left the pod as it is: the nodes of the cluster are not known",
            ),
            NativeCheck(
                expression=draft.text("!$applies || $undecided.size() == 0 || !$requests_others"),
                message=f"{rule.id} left the pod as it is: it requests other extended resources",
            ),
        ),
        warns=any_of([HAS_SKIP, "params.spec.known != true", "has(object.spec.overhead)", names_other]),
        check_variables=variables_of(each for each, _ in earlier),
        is_stable=not reads_changes(ladder, [each.program for each in ladder.conditions], histories),
        query=rule.query,
        allocatable=frozenset(draft.expressions.allocatable),
        total=frozenset(draft.expressions.total),
    )


def _other_resource(rule: FallbackLadder, scope: PolicyScope) -> str:
    """Return the condition for a resource `r` of which the ladder may have to count what nodes offer.

    Resources that other rules give do not count until an earlier ladder has decided them.
    """
    before = {
        name
        for each in scope.before
        if isinstance(each.rule, FallbackLadder) and may_share_pods(each.rule, rule)
        for name in each.rule.resources
    }
    unsettled = []
    for each in scope.rules:
        names = sorted(filter(is_extended_resource, each.interests.gives - before - {*rule.resources}))
        if names:
            unsettled.append(" && ".join([*namespace_conditions(each.match), f"r in {cel_list(names)}"]))
    excluded = any_of([f"r in {cel_list(rule.resources)}", *unsettled])
    return f"r.contains('/') && !({excluded})"


def _may_change(rule: FallbackLadder) -> str:
    """Return the condition for pods that the ladder may change or deny, or for which an expression may fail."""
    conditions = [*match_conditions(rule.match), names_one_of(rule.resources)]
    if not rule.expressions:
        wanted = [rung.resource for rung in rule.rungs if not rung.assume]
        # The sum over containers lacks the overhead: with overhead, the pod always matches.
        several = (
            f"{cel_list(wanted)}.filter(r, {CONTAINERS}.exists(c, r in c.?resources.requests.orValue({{}}))).size() > 1"
        )
        conditions.append(f"({any_of(['has(object.spec.overhead)', several, unserved(rule.name, wanted)])})")
    return join_operands(conditions)


def _check_ladder(ladder: CompiledLadder, decided_before: Earlier) -> None:
    """Raise StaysError for a ladder that depends on more than the offers of nodes, or on other rules."""
    rule = ladder.rule
    place = rule.origin.get
    if rule.pool_keys:
        raise StaysError("pool: what pods select nodes by is not translated", rule.rungs[0].location)
    if rule.offered is Offered.AVAILABLE:
        raise StaysError("offered: Available: free devices change with every pod", place(("spec", "offered")))
    if rule.query.by_pod:
        raise StaysError("MatchesPod: the nodes that count differ by pod", place(("nodes", "require")))
    if rule.when_exhausted is WhenExhausted.DENY and reads_changes(ladder):
        reason = "whenExhausted: Deny is checked after all rules, and it matches or reads what rules change"
        raise StaysError(reason, place(("spec", "whenExhausted")))
    if len(rule.rungs) > MAX_RUNGS:
        reason = f"a large pod would exceed the cost limits of the API server with more than {MAX_RUNGS} rungs"
        raise StaysError(reason, rule.rungs[MAX_RUNGS].location)
    first_rung = rule.rungs[0].location
    for earlier, first in decided_before:
        if first.failure_policy is FailurePolicy.IGNORE and (
            first.expressions or rule.failure_policy is FailurePolicy.FAIL
        ):
            reason = f"{first.id} may fail and be ignored: only then, it does not decide the resources that they share"
            raise StaysError(reason, first_rung)
        if not earlier.is_stable or (first.expressions and rule.when_exhausted is WhenExhausted.DENY):
            reason = f"{first.id} decides the resources that they share, depending on what rules may change"
            raise StaysError(reason, first_rung)


def _earlier(rule: FallbackLadder, scope: PolicyScope) -> Earlier:
    """Return the exported ladders before one that decide some of its resources."""
    return [
        (each, each.rule)
        for each in scope.before
        if isinstance(each.rule, FallbackLadder)
        and not {*each.rule.resources}.isdisjoint(rule.resources)
        and may_share_pods(each.rule, rule)
    ]


def _count(rule: FallbackLadder, scope: PolicyScope, draft: Draft, earlier: Earlier, other: str) -> None:
    """Define the pod's requests and, by rung, the sums of its devices at each point."""
    size = len(rule.rungs)
    draft.define("rungs", cel_list(rule.resources))
    draft.define("requested", f"$rungs.filter(r, {requested('r')})")
    decided = [f"(variables.{each.prefix}applies && r in {cel_list(first.resources)})" for each, first in earlier]
    draft.define("undecided", f"$requested.filter(r, !({' || '.join(decided)}))" if decided else "$requested")
    # A node must offer these, too, which the API server does not know.
    draft.define_literal(
        "requests_others",
        f"""variables.containers.exists(c, [c.limits, c.requests].exists(a,
  a.exists(r, {other} && sign(quantity(a[r])) != 0))) ||
object.spec.?overhead.orValue({{}}).exists(r, {other} && sign(quantity(object.spec.overhead[r])) != 0)""",
    )
    known = [
        f"{cel_literal(rule.name)} in params.spec.?ladders.orValue({{}})",
        *(
            f"(!variables.{each.prefix}applies || {cel_literal(first.name)} in params.spec.?ladders.orValue({{}}))"
            for each, first in earlier
        ),
    ]
    draft.define(
        "decides",
        f"""!$applies ? false : $undecided.size() == 0 ? false :
variables.containers.size() > {MAX_CONTAINERS} ? {too_many(rule, scope)} :
params.spec.known == true && {" && ".join(known)} && !$requests_others &&
// With a request that an earlier ladder decided, the others must be offered on its node.
$requested.size() == $undecided.size() &&
// Amounts that the API server will refuse stay as they are.
!variables.containers.exists(c, $requested.exists(r, {malformed("r")}))""",
    )
    draft.define("nodes", f"params.spec.ladders[{cel_literal(rule.name)}].map(n, $rungs.map(r, n[?r].orValue(0)))")
    draft.define(
        "counts",
        f"variables.containers.map(c, $rungs.map(r, r in $requested ? {_AMOUNT} : 0)) + [{[0] * size}]",
    )
    if rule.counts is Counts.KEEP:
        _add_up("", draft, size)
    else:
        draft.define("weights", str([rung.weight or 1 for rung in rule.rungs]))
        for index, weight in enumerate(rung.weight or 1 for rung in rule.rungs):
            scaled = f"lists.range({size}).map(k, (c[k] * $weights[k] + {weight - 1}) / {weight})"
            draft.define(f"counts_{index}", f"$counts.map(c, {scaled})")
            _add_up(f"_{index}", draft, size)
    draft.define("overhead", "$rungs.map(r, quantity(object.spec.?overhead[?r].orValue('0')).asInteger())")
    draft.define(
        "needs",
        f"lists.range({size}).map(k, !$counts.exists(c, c[k] > 0) ? 0 :\n"
        f"  {_peaks(rule, 'k')}.map(p, p[k]).max() + $overhead[k])",
    )


def _add_up(suffix: str, draft: Draft, size: int) -> None:
    draft.define(
        f"running{suffix}",
        f"lists.range({size}).map(k, variables.containers.transformList(i, c, c.ends ? 0 : $counts{suffix}[i][k]))",
    )
    draft.define(
        f"peaks{suffix}",
        f"variables.points.map(i, lists.range({size}).map(k,\n"
        f"  $counts{suffix}[i][k] + $running{suffix}[k].slice(0, i).sum()))",
    )


def _peaks(rule: FallbackLadder, rung: str) -> str:
    """Return the sums of each rung's devices if they move to `rung`, which is an expression."""
    if rule.counts is Counts.KEEP:
        return "$peaks"
    return f"[{', '.join(f'$peaks_{index}' for index in range(len(rule.rungs)))}][{rung}]"


def _decide(ladder: CompiledLadder, draft: Draft, earlier: Earlier) -> None:
    """Define the requests that stay, then the rung to which each other one moves, given all requests before it.

    A request never moves to a rung from which an earlier ladder for the pod would move it on.
    """
    rule, size = ladder.rule, len(ladder.rungs)
    assumed = next((index for index, rung in enumerate(rule.rungs) if rung.assume), -1)
    order, staying, moving = _order(rule), "$nodes", []
    for rung in order:
        if rung != assumed:
            draft.define(f"offering_{rung}", f"{staying}.filter(n, n[{rung}] >= $needs[{rung}])")
            draft.define(f"staying_{rung}", f"$offering_{rung}.size() > 0 ? $offering_{rung} : {staying}")
            staying = f"$staying_{rung}"
            moving.append(f"($needs[{rung}] > 0 && $offering_{rung}.size() == 0 ? [{rung}] : [])")
    draft.define("moving", " +\n".join(moving) or "[]")
    draft.define(
        "nodes_0",
        "// Nodes that offer all that stays.\n"
        f"$nodes.filter(n, lists.range({size}).all(k, k in $moving || n[k] >= $needs[k]))",
    )
    for step, rung in enumerate(order, start=1):
        before = order[: step - 1]
        targets = ", ".join([str(rung), *(f"$to_{index}" for index in before)])
        gone = " || ".join(f"t == {index} && $to_{index} != {index}" for index in before)
        own = f"({gone} ? 0 : p[t])" if gone else "p[t]"
        draft.define(
            f"load_{rung}",
            f"""// What each rung would have to offer if {rule.rungs[rung].resource} moved to it.
lists.range({size}).map(t, {_peaks(rule, "t")}.map(p, {own} + {[rung, *before]}.transformList(i, k,
  k != t && (i == 0 || [{targets}][i] == t), p[k]).sum()).max() + $overhead[t])""",
        )
        lines = [draft.text(f"!({rung} in $moving) ? {rung} :")]
        for target in rule.targets(rung):
            tests: list[str] = []
            if target != assumed:
                tests.append(draft.text(f"$nodes_{step - 1}.exists(n, n[{target}] >= $load_{rung}[{target}])"))
            resource, load = rule.rungs[target].resource, draft.text(f"$load_{rung}[{target}]")
            for each, first in earlier:
                if any(item.resource == resource and not item.assume for item in first.rungs):
                    offers = f"params.spec.ladders[{cel_literal(first.name)}]"
                    keeps = f"{offers}.exists(n, n[?{cel_literal(resource)}].orValue(0) >= {load})"
                    tests.append(f"(!variables.{each.prefix}applies || {keeps})")
            taken, when = " && ".join(tests) or "true", ladder.rungs[target].when
            if when is not None:
                # With &&, a test that is false would hide an error.
                taken = f"({grouped(draft.expressions.text(when))} ? {taken} : false)"
            lines.append(f"{taken} ? {target} :")
        draft.define_literal(f"to_{rung}", "\n".join([*lines, str(rung)]))
        filtered = f"$nodes_{step - 1}.filter(n, n[$to_{rung}] >= $load_{rung}[$to_{rung}])"
        draft.define(f"nodes_{step}", f"!({rung} in $moving) ? $nodes_{step - 1} : {filtered}")
    draft.define("to", f"[{', '.join(f'$to_{index}' for index in range(size))}]")
    draft.define("moved", f"lists.range({size}).filter(k, $to[k] != k)")
    draft.define("exhausted", f"{order}.filter(k, k in $moving && $to[k] == k)")


def _order(rule: FallbackLadder) -> list[int]:
    """Return the rungs in the order in which their requests are decided."""
    rungs = [*range(len(rule.rungs))]
    return rungs if rule.direction is Direction.UP else rungs[::-1]


def _change(rule: FallbackLadder, draft: Draft) -> None:
    """Define the changes of amounts by path, and the texts of the annotation. Variables cannot have patches."""
    scaled = "$counts[i][k]"
    if rule.counts is Counts.SCALE:
        scaled = f"({scaled} * $weights[k] + $weights[t] - 1) / $weights[t]"
    draft.define("keys", cel_list(map(escape_key, rule.resources)))
    draft.define(
        "removed",
        """['limits', 'requests'].map(s, variables.containers.transformList(i, c,
  $moved.filter(k, $counts[i][k] > 0 && $rungs[k] in c[s]).map(k, c.path + s + '/' + $keys[k])).flatten()).flatten()""",
    )
    draft.define(
        "added",
        f"""variables.containers.transformList(i, c, $moved.filter(k, $counts[i][k] > 0).map(k, $to[k]).distinct()
  .map(t, [string(c.path), $keys[t],
    string((t in $moved ? 0 : $counts[i][t]) + $moved.filter(k, $to[k] == t).map(k, {scaled}).sum())])).flatten()""",
    )
    if rule.annotation:
        names = cel_list(rule.histories)
        draft.define_literal(
            "history", f"({names}.filter(k, k in object.metadata.?annotations.orValue({{}})) + {names})[0]"
        )
        draft.define("annotation", "object.metadata.?annotations[?$history].orValue('')")
        draft.define("names", cel_list(map(short_name, rule.resources)))
        draft.define(
            "changes",
            f"""// In the order of containers, then of rungs; init containers come last.
$moved.sortBy(k, lists.range(variables.containers.size()).filter(i, $counts[i][k] > 0).map(i,
    variables.containers[i].init ? i + variables.containers.size() : i).min() * {len(rule.rungs)} + k)
  .map(k, $names[k] + '->' + $names[$to[k]]).distinct().filter(text, !(text in $annotation.split(',')))""",
        )


def _mutation(rule: FallbackLadder, draft: Draft) -> str:
    # A pod that must be denied is not changed, so that the check finds the same decision on the final pod.
    denies = " || $exhausted.size() > 0" * (rule.when_exhausted is WhenExhausted.DENY)
    operations = [
        f"$removed.map(path, {patch('remove', 'path')})",
        # JSON Patch adds no member to a missing object: a container with requests only has no limits.
        "variables.containers.transformList(i, c, c.limits.size() == 0 && $added.exists(a, a[0] == c.path),\n  "
        + patch("add", "c.path + 'limits'", "{}")
        + ")",
        "['limits', 'requests'].map(s, $added.map(a, " + patch("add", "a[0] + s + '/' + a[1]", "a[2]") + ")).flatten()",
    ]
    texts = [draft.text(each) for each in operations]
    if rule.annotation:
        key = draft.text("'/metadata/annotations/' + $history.replace('/', '~1')")
        value = draft.text("(($annotation == '' ? [] : [$annotation]) + $changes).join(',')")
        texts.append(f"[{patch('add', key, value)}]")
    nothing = draft.text(f"!$decides ? [] : $moved.size() == 0{denies} ? [] :")
    return "\n".join([f"// {rule.id}", nothing, " +\n".join(texts)])


def _exhausted_check(draft: Draft) -> NativeCheck:
    """Return the check that repeats the decision: after a move, all requests stay, and none is exhausted."""
    listed = "$exhausted.map(k, $rungs[k]).join(', ')"
    return NativeCheck(
        expression=draft.text("$decides ? $exhausted.size() == 0 : true"),
        message="no rung can serve the requests of the pod",
        message_expression=draft.text(f"'no rung can serve ' + {listed} + ' for pod ' + {DISPLAY}"),
        reason="Forbidden",
    )
