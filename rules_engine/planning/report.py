"""The report of `plan`: the best choices with their figures, and the layouts of the best one."""

from collections import Counter
from itertools import groupby

from rules_engine.model.gpu.resources import short_name
from rules_engine.model.wording import format_count
from rules_engine.planning.cluster import CONFIG_LABEL, NodePlan, count_devices, name_configs
from rules_engine.planning.plan import Choice, Plan
from rules_engine.report.values import Field, Item, Items, Report, Section, Tone
from rules_engine.simulation.figures import best
from rules_engine.simulation.report import figures_table

SHOWN_DIGITS = 12
"""Digits of a number of candidates; of a longer one, the order of magnitude says more."""


def plan_report(plan: Plan) -> Report:
    """Return the report of a plan."""
    named = [(_name_devices(choice), choice.figures) for choice in plan.choices]
    ties = best([(number, figures) for number, (_, figures) in enumerate(named)], plan.by)
    names = name_configs(plan.choices[0].candidate)
    layouts = [
        Item(
            title=node.name,
            lines=[_describe_cards(cards)],
            fields=[Field("label", "", f"kubectl label node {node.name} {CONFIG_LABEL}={names[cards]} --overwrite")],
            tone=Tone.GOOD,
        )
        for node, cards in zip(plan.cluster.nodes, plan.choices[0].candidate, strict=True)
    ]
    digits = len(str(plan.candidates))
    candidates = f"10^{digits - 1} candidates" if digits > SHOWN_DIGITS else format_count(plan.candidates, "candidate")
    simulated = f"{plan.simulated:,} of {candidates} in a seeded search: another one may be better"
    if plan.complete:
        simulated = f"all {candidates}"
    return Report(
        title=f"Plan for {plan.cluster.base.name}: {plan.cards} × {plan.card}",
        about=[
            f"{format_count(len(plan.cluster.nodes), 'node')}, by {plan.by}, rules: {plan.rules}",
            f"{'interrupted: ' if plan.interrupted else ''}simulated {simulated}",
        ],
        sections=[
            Section(title="Best", blocks=(figures_table("devices", named, ties, "candidate"),)),
            Section(title="Layout of the best", blocks=(Items(items=layouts, noun="node"),)),
        ],
        notices=plan.notices,
    )


def _name_devices(choice: Choice) -> str:
    """Return the devices of each node; equal nodes are one."""
    nodes = Counter(", ".join(_counted(count_devices((plan,)))) for plan in choice.candidate)
    several = len(choice.candidate) > 1
    return "; ".join(f"{count} × ({devices})" if several else devices for devices, count in nodes.items())


def _counted(devices: "Counter[str]") -> list[str]:
    return [f"{number} × {short_name(name)}" for name, number in sorted(devices.items())]


def _describe_cards(layouts: NodePlan) -> str:
    parts = []
    for layout, cards in groupby(layouts):
        count = format_count(len([*cards]), "card")
        parts.append(f"{count}: {', '.join(_counted(Counter(layout))) or 'whole'}")
    return "; ".join(parts)
