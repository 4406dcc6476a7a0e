"""Modules that importing and using CEL loads, and use by several threads."""

import subprocess
import sys
import threading

from rules_engine.language.cel import CelProblems, Environment, compile_expression, types
from rules_engine.model.problems.source import SourceText

SCRIPT = """
import sys
from rules_engine.language.cel import Budget, Environment, compile_expression, types
from rules_engine.model.problems.source import SourceText
limit = sys.getrecursionlimit()
assert not {"celpy", "kubernetes", "lark"} & set(sys.modules)
program = compile_expression(SourceText.inline("object.spec.containers.size() > 0"), Environment({"object": types.POD}))
assert program.evaluate({"object": {"spec": {"containers": [1]}}}, Budget()) is True
assert not {"celpy", "kubernetes"} & set(sys.modules)
assert sys.getrecursionlimit() == limit
"""


def test_cel_imports_neither_celpy_nor_kubernetes() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_threads_compile_at_the_same_time() -> None:
    expressions = [f"object.spec.containers[{number}].name == 'a{number}' && x{number}" for number in range(40)]
    environment = Environment({"object": types.POD})

    def compiled(expression: str) -> str:
        try:
            return str(compile_expression(SourceText.inline(expression), environment).result)
        except CelProblems as error:
            return str(error)

    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = [compiled(expression) for expression in expressions]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results.values()) == [[compiled(expression) for expression in expressions]] * 4
