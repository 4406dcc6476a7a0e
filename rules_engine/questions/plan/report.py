"""The report of `plan`: the best choices with their figures, and the layouts of the best one."""

from collections import Counter
from collections.abc import Mapping

from rules_engine.accelerators.resources import short_name
from rules_engine.model.wording import format_count
from rules_engine.questions.plan.plan import Choice, PlanAnswer
from rules_engine.questions.plan.space import CONFIG_LABEL
from rules_engine.questions.simulate.report import figures_table
from rules_engine.report.values import Item, ItemField, Items, Report, Section, Table, Tone

SHOWN_DIGITS = 12
"""Digits of a number of candidates; of a longer one, the order of magnitude says more."""


def plan_report(plan: PlanAnswer) -> Report:
    """Return the report of a plan."""
    choices = [(str(number), choice) for number, choice in enumerate(plan.choices, 1)]
    devices = [(number, _name_devices(choice)) for number, choice in choices]
    ties = [number for number, choice in enumerate(plan.choices) if choice.best]
    first = plan.choices[0]
    layouts = [
        Item(
            title=node,
            lines=[
                "; ".join(
                    f"{format_count(len(part['devices']), 'card')}: {_counted(part.get('mig-devices', {})) or 'whole'}"
                    for part in first.mig_configs["mig-configs"][config]
                )
            ],
            fields=[ItemField("label", "", f"kubectl label node {node} {CONFIG_LABEL}={config} --overwrite")],
            tone=Tone.GOOD,
        )
        for node, config in first.configs.items()
    ]
    digits = len(str(plan.candidates))
    candidates = f"10^{digits - 1} candidates" if digits > SHOWN_DIGITS else format_count(plan.candidates, "candidate")
    simulated = f"{plan.simulated:,} of {candidates} in a seeded search: another one may be better"
    if plan.complete:
        simulated = f"all {candidates}"
    return Report(
        title=f"Plan for {plan.simulation}: {plan.cards} × {plan.card}",
        about=[
            f"{format_count(len(first.configs), 'node')}, by {plan.by}, rules: {plan.rules or 'none'}",
            f"{'interrupted: ' if plan.interrupted else ''}simulated {simulated}",
        ],
        sections=[
            Section(title="Best", blocks=(figures_table("choice", choices, ties, "candidate"),)),
            Section(title="Devices", blocks=(Table(heads=("choice", "devices"), rows=devices, noun="candidate"),)),
            Section(title="Layout of the best", blocks=(Items(items=layouts, noun="node"),)),
        ],
        notices=plan.notices,
    )


def _name_devices(choice: Choice) -> str:
    """Return the devices of each node; equal nodes are one."""
    nodes = Counter(_counted(devices) for devices in choice.devices.values())
    several = len(choice.devices) > 1
    return "; ".join(f"{count} × ({devices})" if several else devices for devices, count in nodes.items())


def _counted(devices: Mapping[str, int]) -> str:
    return ", ".join(f"{number} × {short_name(name)}" for name, number in sorted(devices.items()))
