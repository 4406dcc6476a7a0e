"""Scenarios with any mistake: each is refused with problems, or it can be played to its end."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rules_engine.model.problems.problem import Severity
from rules_engine.questions.simulate.answer import build_answer
from rules_engine.questions.simulate.play import play_simulation
from rules_engine.questions.simulate.record import Record
from rules_engine.report.answer import answer_text
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.simulations import load_simulations
from tests.support.simulation import rules

CONTAINER = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": 1}}, "ports": [{"hostPort": 80}]}
POD_SPEC = {
    "priorityClassName": "high",
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 5, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "containers": [CONTAINER],
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
SCENARIO: dict[str, Any] = {
    "apiVersion": "gpurules.io/v1",
    "kind": "Simulation",
    "metadata": {"name": "any"},
    "spec": {
        "cluster": {
            "nodes": [
                {"name": "n", "count": 2, "labels": {"pool": "a", "zone": "x"}, "allocatable": {"nvidia.com/gpu": 2}},
                {"name": "m", "cards": 1, "taints": [{"key": "gpu", "effect": "NoExecute"}]},
            ],
            "pods": [{"metadata": {"name": "there"}, "spec": {"nodeName": "m", "containers": [CONTAINER]}}],
            "objects": [{"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}],
        },
        "seed": 1,
        "arrivals": [
            {"at": "1s", "every": {"mean": "1m"}, "count": 3, "pod": {"kind": "Pod", **TEMPLATE}, "runFor": "1m"},
            {
                "workload": {
                    "kind": "Job",
                    "metadata": {"name": "train"},
                    "spec": {"parallelism": 2, "completions": 3, "template": TEMPLATE},
                },
                "runFor": {"min": "1s", "max": "1h"},
            },
            {
                "priority": 20,
                "workload": {
                    "kind": "Deployment",
                    "metadata": {"name": "serve"},
                    "spec": {
                        "replicas": 2,
                        "selector": {"matchLabels": {"a": "b"}},
                        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
                    },
                },
            },
        ],
        "events": [
            {"at": "10s", "node": "n-1", "becomes": "NotReady"},
            {"at": "20m", "node": "n-1", "becomes": "Ready"},
            {"at": "30m", "node": "m", "becomes": "Drained"},
        ],
        "runningFor": {"mean": "1h"},
        "until": "2h",
        "scheduler": {"scoring": "MostAllocated", "resources": {"nvidia.com/gpu": 3}, "preemption": True},
    },
}

anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 20)
    | st.floats(-2, 20)
    | st.text("ab/:*-.\n ", max_size=4)
    | st.sampled_from(["-1", "1Gi", "0.5", "1m", "0", "Exists", "In", "nvidia.com/gpu", "zone", "n-1", "Never", "Pod"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab/ ", max_size=3), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def scenarios(draw: st.DrawFn) -> Any:
    """The scenario with one or two values replaced, removed, copied or added."""
    document = copy.deepcopy(SCENARIO)
    for _ in range(draw(st.integers(1, 2))):
        node: Any = document["spec"]
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = draw(st.sampled_from(keys)) if keys else None
            below = None if key is None else node[key]
            if not isinstance(below, dict | list) or not below or draw(st.integers(0, 6)) == 0:
                break
            node = below
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove" and key is not None:
            del node[key]
        elif change == "replace" and key is not None:
            node[key] = draw(anything)
        elif isinstance(node, dict):
            node[draw(st.sampled_from(["a", "name", "spec", "count", "overhead", "hostNetwork"]))] = draw(anything)
        else:
            node.append(copy.deepcopy(below))
    return document


@pytest.fixture(scope="module")
def rule_set() -> RuleSet:
    return rules("rules/gpu-allocation")


def shown(record: Record) -> Any:
    """Return the answer as JSON."""
    return json.loads(answer_text(build_answer([record])))


@given(scenario=scenarios())
@example(scenario=SCENARIO)
def test_a_scenario_has_errors_or_is_played_to_its_end(scenario: Any, rule_set: RuleSet, tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    simulations, problems, _ = load_simulations(path, [])
    simulation = simulations[0] if simulations else None
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    assert (simulation is None) == bool(errors)
    if simulation is not None:
        record = play_simulation(simulation, rule_set, "default")
        again = play_simulation(simulation, rule_set, "default")
        assert shown(record) == shown(again)
