"""The load of a scenario in a simulation: which of its pods run, and which wait for how long."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rules_engine.documents.simulations import load_simulation
from rules_engine.model.wording import format_duration
from rules_engine.simulation.play import play_simulation
from rules_engine.simulation.record import PodRecord, State
from rules_engine.sources.rule_files import DEFAULT_RULES, has_errors
from rules_engine.sources.rule_sources import DEFAULT_SOURCES, read_sources
from server.demo.scenarios import Load, Scenario

PACKAGED = DEFAULT_RULES.parent.parent / "scenarios"
"""Folder of the packaged Simulations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLoad:
    """Result of a load: its pods at the end of the Simulation, and at the end of all pods.

    `wrong` describes differences from the expected result.
    """

    load: Load
    pods: Sequence[PodRecord]
    last: Sequence[PodRecord]
    wrong: tuple[str, ...]

    @property
    def waiting(self) -> Sequence[PodRecord]:
        return [pod for pod in self.pods if pod.state is State.PENDING]

    @property
    def running(self) -> Counter[str]:
        """Number of running pods by node, in the order of names."""
        return Counter(sorted(pod.node for pod in self.pods if pod.state is State.RUNNING))

    def sentences(self) -> tuple[str, ...]:
        """Return lines about the running pods of each node, and about each that waits."""
        later = {pod.name: pod for pod in self.last}
        return (
            *(f"{node} runs {count} of the pods" for node, count in self.running.items()),
            *(f"{pod.name} waits: {pod.message}" for pod in self.waiting),
            *(_later_sentence(later[pod.name]) for pod in self.waiting if pod.name in later),
        )


def _later_sentence(pod: PodRecord) -> str:
    if pod.bound is None:
        return f"{pod.name} never runs"
    return f"{pod.name} runs on {pod.node} after {format_duration(pod.bound - pod.arrived)}, when another pod has ended"


def play_load(scenario: Scenario, load: Load, folder: Path = PACKAGED) -> PlayedLoad:
    """Play the load of a scenario with the packaged rules.

    Raises ValueError if it cannot be read, and KeyboardInterrupt.
    """
    file = folder / f"{load.simulation}.yaml"
    simulation, problems, _ = load_simulation(file, None)
    files = read_sources(DEFAULT_SOURCES)
    if simulation is None or has_errors((*problems, *files.rule_problems)):
        raise ValueError(f"{file} cannot be simulated: {'; '.join(problem.message for problem in problems)}")
    first, last = (
        play_simulation(variant, files.rule_set, DEFAULT_RULES.name)
        for variant in (simulation, replace(simulation, until=None))
    )
    if first.interrupted or last.interrupted:
        raise KeyboardInterrupt
    result = PlayedLoad(load=load, pods=first.pods, last=last.pods, wrong=())
    return replace(result, wrong=tuple(_load_differences(scenario, result)))


def _load_differences(scenario: Scenario, result: PlayedLoad) -> list[str]:
    load = result.load
    differences = []
    if (names := {pod.name for pod in result.pods}) != {admission.pod for admission in scenario.admissions}:
        differences.append(f"the pods of the Simulation must be those of the scenario, not {', '.join(sorted(names))}")
    if (running := dict(result.running)) != load.running:
        differences.append(f"the running pods by node must be {dict(load.running)}, not {running}")
    if (waiting := {pod.name: pod.message for pod in result.waiting}) != dict.fromkeys(load.waiting, load.message):
        differences.append(f"{', '.join(load.waiting)} must wait: {load.message}; not {waiting}")
    unfinished = [pod.name for pod in result.last if pod.state is not State.SUCCEEDED]
    if unfinished:
        differences.append(f"all pods must run in the end, but {', '.join(unfinished)} did not")
    return differences
