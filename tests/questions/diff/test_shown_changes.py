"""Changes as people see them: a difference for each kind of change, and every pod."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from rules_engine.model.problems.source import Location
from rules_engine.model.rules.decision import Action
from rules_engine.model.rules.rule import RuleId
from rules_engine.questions.diff.comparison import compare_outcomes
from rules_engine.questions.diff.shown_changes import Difference, group_changes
from rules_engine.questions.diff.values import ContainerAmount, Kind, Move, Outcome, RuleEffect
from tests.support.differences import answer, submitted, unknown

RULES = tuple(RuleId(f"Validation/{name}") for name in "abc")
TEXTS = st.sampled_from(("", "x", "removed"))
QUANTITIES = st.none() | st.sampled_from(("0", "1", "1Ki", "1024", "1k", "1e3"))

TITLES: Mapping[Kind, str] = {
    Kind.DENIED: "admission",
    Kind.ADMITTED: "admission",
    Kind.UNKNOWN: "admission",
    Kind.RUNG: "given for ",
    Kind.RESOURCES: "",
    Kind.ANNOTATIONS: "annotation ",
    Kind.WARNINGS: "warnings",
    Kind.MESSAGE: "message",
    Kind.RULE: "Validation/",
}


@st.composite
def effects(draw: st.DrawFn, rule: RuleId) -> RuleEffect:
    moves = draw(st.lists(st.permutations("pqr"), max_size=2))
    return RuleEffect(
        rule=rule,
        source=Location("rules.yaml", draw(st.integers(1, 3)), 1),
        action=draw(st.sampled_from(Action)),
        fallbacks=tuple(Move(requested=move[0], given=move[1]) for move in moves),
        annotations=draw(st.dictionaries(st.sampled_from("kl"), TEXTS)),
        warnings=tuple(draw(st.lists(TEXTS, max_size=1))),
    )


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    rules = draw(st.sets(st.sampled_from(RULES)))
    warnings = tuple(draw(st.lists(st.sampled_from("vw"), unique=True)))
    decisions = tuple(draw(effects(rule)) for rule in sorted(rules))
    match draw(st.sampled_from(["unknown", "denied", "allowed", "allowed"])):
        case "unknown":
            return unknown(draw(st.sampled_from(("why", "because"))))
        case "denied":
            return Outcome(allowed=False, message=draw(TEXTS), warnings=warnings, rules=decisions)
    names = st.tuples(st.sampled_from("mn"), st.sampled_from("pqr"))
    amounts = [
        ContainerAmount(container=container, resource=resource, request=draw(QUANTITIES), limit=draw(QUANTITIES))
        for container, resource in sorted(draw(st.sets(names)))
    ]
    annotations = draw(st.dictionaries(st.sampled_from("kl"), st.none() | TEXTS))
    return Outcome(resources=tuple(amounts), annotations=annotations, warnings=warnings, rules=decisions)


@given(outcomes(), outcomes())
def test_each_kind_and_rule_has_a_difference(before: Outcome, after: Outcome) -> None:
    answered = answer([(submitted("a"), before, after)])
    change = compare_outcomes(before, after)
    if change is None:
        assert group_changes(answered.changes) == []
        return
    (shown,) = group_changes(answered.changes)

    assert shown.kinds == change.kinds
    for kind in shown.kinds:
        assert [each for each in shown.differences if each.title.startswith(TITLES[kind])]
    assert [each.title for each in shown.differences if each.title.startswith("Validation/")] == [
        each.rule for each in change.rules
    ]
    for each in shown.differences:
        assert each.before != each.after or kept_place(each) or before.unknown


def kept_place(difference: Difference) -> bool:
    """Return True for a rule with another effect at the same place."""
    return difference.title.startswith("Validation/") and difference.before.startswith("rules.yaml:")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5), outcomes(), outcomes()), max_size=8))
def test_no_pod_is_lost(pods: list[tuple[str, int, Outcome, Outcome]]) -> None:
    answered = answer([(submitted(name, count=count), before, after) for name, count, before, after in pods])
    (totals,) = answered.clusters

    shown = group_changes(answered.changes)

    assert sum(each.pods for each in shown) == totals.changed
    for kind, count in totals.kinds.items():
        assert sum(each.pods for each in shown if kind in each.kinds) == count
    assert len({(each.kinds, each.differences) for each in shown}) == len(shown)
