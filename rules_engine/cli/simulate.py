"""`simulate`: a workload on a cluster, under rules and a model of kube-scheduler."""

from collections.abc import Sequence
from dataclasses import replace
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
    sources_option,
    targets_option,
)
from rules_engine.cli.program import (
    INTERRUPTED,
    UNKNOWN,
    Command,
    InputProblems,
    Target,
    deferred_interrupts,
    fail_if,
    help_examples,
)
from rules_engine.cli.progress import progress_bar

if TYPE_CHECKING:
    from rules_engine.rules.sources.rule_sources import RuleSource

MAX_SEED = 2**63 - 1
"""Largest seed, as in the schema of Simulation: it fits into 64 bits."""


@click.command(
    cls=Command,
    short_help="Show which pods of a workload run, wait or fall back under rules.",
    epilog=help_examples(
        "gpu-rules simulate -f load.yaml --rules rules",
        "gpu-rules simulate -f load.yaml --compare rules",
        "gpu-rules simulate -f load.yaml --cluster cluster.yaml",
        "gpu-rules simulate -f load.yaml --rules a -o html=a.html",
    ),
)
@load_option
@rules_option
@catalogue_option
@sources_option("--compare", "Other rules for the same workload, each beside --rules")
@cluster_option(
    ". Default: the Simulation's. Repeatable: the workload is simulated on each.",
    POD_KINDS,
    multiple=True,
    creates=True,
)
@by_option
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_SEED),
    metavar="NUMBER",
    help="Seed of random times and of ties. Default: the Simulation's.",
)
@click.option(
    "--scoring",
    type=click.Choice(["LeastAllocated", "MostAllocated"]),
    help="Scoring strategy of the scheduler. Default: the Simulation's.",
)
@click.option("--no-preemption", is_flag=True, help="Pods preempt no other pods.")
@targets_option("text", "json", "html")
def simulate(
    file: Path,
    rules: "tuple[RuleSource, ...]",
    compare: "tuple[RuleSource, ...]",
    clusters: tuple[ClusterArgument, ...],
    by: str | None,
    seed: int | None,
    scoring: str | None,
    no_preemption: bool,
    targets: tuple[Target, ...],
) -> None:
    """Simulate a workload under rules and a model of kube-scheduler.

    Shows which pods run, wait or are denied, and how nodes are used over time. Needs no live cluster. Several --cluster
    or --compare are compared in one table.

    Exits with 2 if the Simulation, the cluster or rules have errors, and with 3 if an arrival has pods whose number is
    not known. Ctrl-C prints the answer up to then, and the exit code is 130.
    """
    from rules_engine.model.rules.simulation import Strategy
    from rules_engine.questions.simulate.figures import By
    from rules_engine.questions.simulate.report import simulation_report

    sets: dict[str, Sequence[RuleSource]] = {" ".join(map(str, rules)): rules}
    sets |= {str(source): (source,) for source in compare}
    if len(sets) != 1 + len(compare):
        raise click.UsageError("--compare needs other rules than --rules and each other --compare")
    paths = [Path(each.name).resolve() for each in clusters]
    for index, each in enumerate(clusters):
        if paths[index] in paths[:index]:
            raise click.UsageError(f"--cluster {each.name} is given twice")
    if by is not None and max(len(clusters), len(sets)) < 2:
        raise click.UsageError("--by needs several clusters or rule sets: a second --cluster, or --compare")
    problems = InputProblems("simulate", targets)
    simulations, files = read_load(file, clusters, sets.values(), problems)
    options = simulations[0].scheduler
    if scoring is not None:
        options = replace(options, scoring=Strategy(scoring))
    if no_preemption:
        options = replace(options, preemption=False)
    seed = simulations[0].seed if seed is None else seed
    by_cluster = {
        name: replace(simulation, scheduler=options, seed=seed)
        for name, simulation in zip([each.name for each in clusters] or [""], simulations, strict=True)
    }
    sets_by_name = {name: each.rule_set for name, each in zip(sets, files, strict=True)}
    with deferred_interrupts() as check:
        with progress_bar("count", "remaining") as show:

            def report(title: str, done: int, total: int) -> None:
                check()
                show(title, done, total)

            answer = rules_engine.simulate(sets_by_name, by_cluster, by=By(by or By.WAITING), progress=report)
        problems.write(answer, simulation_report)
    fail_if(any(result.interrupted for result in answer.results), INTERRUPTED)
    fail_if(bool(problems.unknown), UNKNOWN)
