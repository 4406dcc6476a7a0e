"""CEL: this engine beside cel-python's interpreter and, where it is installed, Google's C++ (python -m bench.cel).

All engines are measured in one run on one pod. Compare the ratios: absolute figures differ by a factor of two between
runs on a busy machine. The work that a request does once is excluded: parsing JSON, and for the other engines the
conversion of the pod to their values. cel-expr-python runs in a process of its own, since 0.1.3 aborts on Python 3.11
after many null results (pip install cel-expr-python; it is measured if installed).

The last row is the evaluation of the shipped validations on a pod with GPUs, matching and trace included, by generated
code and by the interpreter.

With --costs, the most expensive unit of each operation is measured instead, in µs: random hostile values
(tests/fuzz/cel_costs.py), in loops. The cost limit of a request is REQUEST_COST units.

With --check, the exit code is 1 if a target is missed: 200 times as fast as cel-python, twice as fast as
cel-expr-python, 1 ms for a compilation, and evaluation independent of the size of unread parts of the pod; with
--costs, 2 s for all units of a request.
"""

import argparse
import json
import random
import subprocess
import sys
import timeit
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rules_engine.language.cel import Budget, Environment, Program, compile_expression, types
from rules_engine.language.cel.budget import REQUEST_COST
from rules_engine.model.kubernetes.cluster import UNKNOWN_CLUSTER
from rules_engine.model.problems.source import SourceText
from rules_engine.rules.sources.documents import load_documents
from tests.fuzz import cel_costs
from tests.support import evaluation

RULES = Path(__file__).parent.parent / "rules" / "gpu-allocation"

EXPRESSIONS = (
    'object.metadata.namespace == "ml"',
    'has(object.metadata.annotations) && "gpurules.io/skip" in object.metadata.annotations',
    'object.spec.containers.exists(c, has(c.resources.requests) && "nvidia.com/gpu" in c.resources.requests)',
    'object.spec.containers.all(c, !has(c.resources.limits) || int(c.resources.limits["nvidia.com/gpu"]) <= 8)',
    'object.spec.containers.all(c, c.image.startsWith("nvcr.io/") || c.image.startsWith("registry.local/"))',
)
"""Typical conditions of rules, with the names of a real pod."""

CEL_PYTHON_RATIO = 200
CEL_EXPR_RATIO = 2
COMPILE_MS = 1.0
REQUEST_SECONDS = 2.0
SIZE_RATIO = 1.5  # a pod ten times as large; the rest is noise

REPEATS = 7
ROUNDS = 3


def typical_pod(scale: int = 1) -> dict[str, Any]:
    """Return a pod of about 6 kB times `scale`, which grows in parts that the expressions do not read."""
    containers = [
        {
            "name": name,
            "image": f"nvcr.io/nvidia/{name}:24.08-py3",
            "command": ["python", "-m", "torch.distributed.run", "--nproc-per-node=4", "train.py"],
            "env": [{"name": f"OPTION_{place}", "value": "value " * 5} for place in range(18 * scale)],
            "resources": {
                "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"},
                "requests": {"cpu": "8", "memory": "64Gi", resource: "4"},
            },
            "volumeMounts": [{"name": f"data-{place}", "mountPath": f"/data/{place}"} for place in range(4)],
        }
        for name, resource in (("pytorch", "example.com/nic"), ("logs", "example.com/nic"), ("dcgm", "nvidia.com/gpu"))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "ml",
            "labels": {f"example.com/label-{place}": "a label's value" for place in range(8 * scale)},
            "annotations": {"gpurules.io/skip": "true"}
            | {f"example.com/annotation-{place}": "an annotation's value" for place in range(12 * scale)},
        },
        "spec": {"containers": containers, "nodeSelector": {"node-pool": "gpu"}, "priority": 100},
    }


def microseconds(run: Callable[[], object]) -> float:
    """Return the time of one call: the best of several rounds, each of at least 20 ms."""
    timer = timeit.Timer(run)
    number = 1
    while timer.timeit(number) < 0.02:
        number *= 2
    return min(timer.repeat(REPEATS, number)) / number * 1e6


def ours(value: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the time of each expression, in µs: by generated code and by the interpreter."""
    environment = Environment({"object": types.POD})
    measured = []
    for expression in EXPRESSIONS:
        program = compile_expression(SourceText.inline(expression), environment)
        activation, budget = {"object": value}, Budget(2**62)
        if program.evaluate(activation, budget) is not True:
            raise RuntimeError(f"{expression} must be true for the pod")
        measured.append(
            (
                microseconds(lambda: program.evaluate(activation, budget)),  # noqa: B023
                microseconds(lambda: program.interpret(activation, budget)),  # noqa: B023
            )
        )
    return measured


def _best(rounds: Iterable[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the minimum of each figure over the rounds."""
    return [
        (min(quick), min(precise)) for quick, precise in (zip(*row, strict=True) for row in zip(*rounds, strict=True))
    ]


def shipped() -> tuple[float, float]:
    """Return the time of the shipped validations on a pod with GPUs, in µs: by generated code, by the interpreter."""
    rule_set = evaluation.compiled(*load_documents([RULES]).rules)
    containers = [evaluation.container(name, {evaluation.GPU: 4, "cpu": 8, "memory": "64Gi"}) for name in "abc"]
    request = evaluation.request(evaluation.pod(*containers))

    def decide() -> None:
        if not rule_set.validate(request, UNKNOWN_CLUSTER).allowed:
            raise RuntimeError("the pod must be allowed")

    quick = microseconds(decide)
    with patch.object(Program, "evaluate", Program.interpret):
        return quick, microseconds(decide)


def compilation() -> float:
    """Return the mean time to compile one of the expressions with a built grammar, in ms."""
    environment = Environment({"object": types.POD})
    sources = [SourceText.inline(expression) for expression in EXPRESSIONS]
    return microseconds(lambda: [compile_expression(source, environment) for source in sources]) / len(sources) / 1000


def cel_python(value: dict[str, Any]) -> list[float]:
    """Return the time of each expression in cel-python's InterpretedRunner, without the pod's conversion, in µs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import celpy
        from celpy.adapter import json_to_cel

        engine = celpy.Environment(runner_class=celpy.InterpretedRunner)
        activation = {"object": json_to_cel(value)}
        programs = [engine.program(engine.compile(expression)) for expression in EXPRESSIONS]
        return [microseconds(lambda: program.evaluate(activation)) for program in programs]  # noqa: B023


def cel_expr_python(value: dict[str, Any]) -> list[float]:
    """Return the time of each expression in cel-expr-python with a reused activation, in µs."""
    cel: Any = import_module("cel_expr_python.cel")
    engine = cel.NewEnv(variables={"object": cel.Type.DYN})
    activation = engine.Activation({"object": value})
    programs = [engine.compile(expression) for expression in EXPRESSIONS]
    return [microseconds(lambda: program.eval(activation).value()) for program in programs]  # noqa: B023


def _other_process(name: str) -> list[float] | None:
    """Return the times of another engine, measured in a process of its own, or None if its package is missing."""
    if find_spec(name) is None:
        return None
    command = [sys.executable, "-m", "bench.cel", "--only", name]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    measured: list[float] = json.loads(found.stdout)
    return measured


def costs(draws: int, seed: int) -> list[cel_costs.Measured]:
    """Return the most expensive unit of each operation over several draws of values, the worst first."""
    source = random.Random(seed)
    found = []
    for operation in cel_costs.operations():
        attacks = [cel_costs.drawn(operation, source) for _ in range(draws)]
        measured = [cel_costs.again(one) for attack in attacks if (one := cel_costs.worst(attack)) is not None]
        if measured:
            found.append(max(measured, key=lambda one: one.unit_seconds))
    return sorted(found, key=lambda one: one.unit_seconds, reverse=True)


def show_costs(draws: int, seed: int) -> bool:
    """Print the worst of each operation; return whether all units of a request take at most REQUEST_SECONDS."""
    found = costs(draws, seed)
    print(
        f"µs per unit, {draws} draws of values for each operation, seed {seed}; counting one unit takes "
        f"{cel_costs.unit_seconds() * 1e6:.2f}\n"
    )
    for one in found:
        print(f"{one.unit_seconds * 1e6:6.2f}  {one.attack}, size {one.size}, {one.way}")
    seconds = found[0].unit_seconds * REQUEST_COST
    print(f"\nthe limit of {REQUEST_COST} units takes at most {seconds:.1f} s")
    return seconds <= REQUEST_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--costs", type=int, metavar="DRAWS", help="measure operations per unit of cost instead")
    parser.add_argument("--seed", type=int, default=1, help="seed of --costs (default: 1)")
    parser.add_argument("--only", choices=("celpy", "cel_expr_python"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        run = cel_python if arguments.only == "celpy" else cel_expr_python
        print(json.dumps(run(typical_pod())))
        return 0
    if arguments.costs:
        kept = show_costs(arguments.costs, arguments.seed)
        return 0 if kept or not arguments.check else 1
    python, google = _other_process("celpy"), _other_process("cel_expr_python")
    sizes = [
        (ours(typical_pod()), ours(typical_pod(10))) for _ in range(ROUNDS)
    ]  # alternating: other processes slow both
    mine, large = (_best(rounds) for rounds in zip(*sizes, strict=True))
    compile_ms = min(compilation() for _ in range(ROUNDS))
    kilobytes = len(json.dumps(typical_pod(), separators=(",", ":"))) / 1000
    print(f"µs per evaluation on a pod of {kilobytes:.1f} kB; ×: ratio to ours\n")
    print(f"{'ours':>6} {'interpreter':>12} {'10 × pod':>9} {'cel-python':>17} {'cel-expr-python':>17}")
    kept = compile_ms <= COMPILE_MS
    for place, expression in enumerate(EXPRESSIONS):
        quick, precise = mine[place]
        cells = [f"{quick:6.2f} {precise:12.1f} {large[place][0]:9.2f}"]
        for other, least in ((python, CEL_PYTHON_RATIO), (google, CEL_EXPR_RATIO)):
            if other is None:
                cells.append(f"{'not installed':>17}")
            else:
                cells.append(f"{other[place]:8.1f} {other[place] / quick:6.1f} ×")
                kept &= other[place] >= least * quick
        kept &= large[place][0] <= SIZE_RATIO * quick
        print(*cells, f"  {expression}")
    quick, precise = shipped()
    print(f"{quick:6.2f} {precise:12.1f} ({precise / quick:.1f} ×)   shipped validations")
    print(f"\ncompile: {compile_ms:.2f} ms an expression")
    if arguments.check:
        print("all targets are met" if kept else "a target is missed")
    return 0 if kept or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
