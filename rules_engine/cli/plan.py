"""`plan`: the MIG layouts of cards that serve a workload best."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

import rules_engine
from rules_engine.cli.options import (
    POD_KINDS,
    ClusterArgument,
    by_option,
    catalogue_option,
    cluster_option,
    load_option,
    read_load,
    rules_option,
    targets_option,
)
from rules_engine.cli.program import (
    INTERRUPTED,
    UNKNOWN,
    Command,
    InputProblems,
    SingleOption,
    Target,
    deferred_interrupts,
    end_without_answer,
    fail_if,
    help_examples,
)
from rules_engine.cli.progress import progress_bar

if TYPE_CHECKING:
    from rules_engine.model.kubernetes.quantity import Quantity
    from rules_engine.rules.sources.rule_sources import RuleSource

MAX_CARDS = 16
"""Cards of a node: no machine has more."""

MAX_NODES = 100
"""New nodes: a simulation takes longer with each, and a search has time for few."""


def _read_cards(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, str]:
    """Return the number of a node's cards, and their name, which the rules may define."""
    number, sign, card = value.partition("x")
    if not sign or not number.isdecimal() or not 1 <= int(number) <= MAX_CARDS:
        raise click.BadParameter(f"{value!r} is not 1 to {MAX_CARDS} cards of a kind, such as 8xA100-80GB")
    return int(number), card


def _read_amount(_context: click.Context, _parameter: click.Parameter, value: str | None) -> "Quantity | None":
    from rules_engine.model.kubernetes.quantity import Quantity, QuantityError

    try:
        amount = None if value is None else Quantity.parse(value)
    except QuantityError as error:
        raise click.BadParameter(str(error)) from None
    if amount is not None and amount.nanos <= 0:
        raise click.BadParameter(f"{value!r} must be more than 0")
    return amount


@click.command(
    cls=Command,
    short_help="Find the MIG layouts of cards that serve a workload best.",
    epilog=help_examples(
        "gpu-rules plan -f load.yaml --rules a --cards 8xA100-80GB",
        "gpu-rules plan -f load.yaml --cards 8xH200 --nodes 2",
        "gpu-rules plan -f load.yaml --cards 4xA30 --by unserved",
        "gpu-rules plan -f load.yaml --cards 4xA30 -o mig-configs",
    ),
)
@load_option
@click.option(
    "--cards",
    cls=SingleOption,
    required=True,
    callback=_read_cards,
    metavar="NUMBERxCARD",
    help="Cards of each node that is planned, such as 8xA100-80GB.",
)
@rules_option
@catalogue_option
@by_option
@cluster_option(". Its nodes with GPUs are planned. Default: the Simulation's.", POD_KINDS, creates=True)
@click.option("--keep", multiple=True, metavar="NODE", help="Leave a node of the cluster as it is. Repeatable.")
@click.option(
    "--nodes",
    type=click.IntRange(1, MAX_NODES),
    metavar="NUMBER",
    help="Plan new nodes in place of those of the cluster. Default: 1 if the cluster has none with GPUs.",
)
@click.option("--cpu", callback=_read_amount, metavar="QUANTITY", help="cpu of each planned node. New nodes: 128.")
@click.option(
    "--memory", callback=_read_amount, metavar="QUANTITY", help="memory of each planned node. New nodes: 1Ti."
)
@click.option(
    "--seconds",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    metavar="NUMBER",
    help="End the search after this time, with the best so far.",
)
@targets_option("text", "json", "html", "inventory", "mig-configs")
def plan(
    file: Path,
    cards: tuple[int, str],
    rules: "tuple[RuleSource, ...]",
    by: str | None,
    cluster: ClusterArgument | None,
    keep: tuple[str, ...],
    nodes: int | None,
    cpu: "Quantity | None",
    memory: "Quantity | None",
    seconds: int,
    targets: tuple[Target, ...],
) -> None:
    """Find the MIG layouts of cards with which a workload is served best under rules.

    Simulates the workload on layouts of all cards, whole cards among them, as simulate does. Writes the best one as a
    ClusterInventory for --cluster, and as a configuration of nvidia-mig-parted for NVIDIA's mig-manager.

    Exits with 2 if the input has errors, or no layout serves the workload, and with 3 if an arrival has pods whose
    number is not known. Ctrl-C prints the best so far, and the exit code is 130.
    """
    from rules_engine.accelerators.mig import placed_cards
    from rules_engine.language.yaml.text import dump_yaml
    from rules_engine.model.problems.problem import did_you_mean
    from rules_engine.questions.plan.plan import LostNodeError, PlanError
    from rules_engine.questions.plan.report import plan_report
    from rules_engine.questions.simulate.figures import By

    problems = InputProblems("plan", targets)
    (simulation,), (files,) = read_load(file, [cluster] if cluster else [], [rules], problems, needs_cluster=False)
    if cards[1] not in placed_cards():
        message = f"no MIG placements are published for {cards[1]!r}, only for {', '.join(placed_cards())}"
        raise click.BadParameter(message, param_hint="--cards")
    existing = [node.name for node in simulation.objects.nodes]
    for name in keep:
        if name not in existing:
            raise click.BadParameter(f"node {name!r} not found{did_you_mean(name, existing)}", param_hint="--keep")
    amounts = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    with deferred_interrupts() as check, progress_bar("count", "elapsed") as show:

        def progress(done: int, total: int) -> None:
            check()
            show("candidates simulated", done, total)

        try:
            answer = rules_engine.plan(
                files.rule_set,
                simulation,
                cards,
                keep=keep,
                nodes=nodes or 0,
                amounts=amounts,
                by=By(by or By.WAITING),
                rules=" ".join(map(str, rules)),
                seconds=seconds,
                progress=progress,
            )
        except LostNodeError as error:
            raise click.UsageError(str(error)) from None
        except PlanError as error:
            end_without_answer(str(error), str(file), problems.items)
    problems.write(
        answer,
        plan_report,
        {
            "inventory": lambda plan: dump_yaml(plan.inventory),
            "mig-configs": lambda plan: dump_yaml(plan.choices[0].mig_configs),
        },
    )
    fail_if(answer.interrupted, INTERRUPTED)
    fail_if(bool(problems.unknown), UNKNOWN)
