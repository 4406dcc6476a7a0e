"""Laws: the seed of a run repeats its examples, and the time of an example decides how many are checked."""

import subprocess
import sys
from pathlib import Path

from tests.support.server import ROOT

LAWS = """
from time import process_time

from hypothesis import given, strategies

@given(strategies.integers(0, 2**64))
def test_slow(number):
    print("slow", number)
    end = process_time() + 0.05
    while process_time() < end:
        pass

@given(strategies.integers(0, 2**64))
def test_fast(number):
    print("fast", number)

@given(strategies.integers(0, 2**64))
def test_false(number):
    assert number < 1000
"""


def test_a_seed_repeats_the_examples_and_a_failure_names_it(tmp_path: Path) -> None:
    file = tmp_path / "test_laws.py"
    file.write_text(LAWS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(tmp_path), "-rP", str(file)]

    def examples(name: str, *options: str) -> tuple[list[str], str]:
        done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
        return [line for line in done.stdout.splitlines() if line.startswith(name)], done.stdout

    slow, first = examples("slow", "--hypothesis-seed=7")
    assert len(slow) == 20
    assert len([line for line in first.splitlines() if line.startswith("fast")]) > 20
    assert "laws: SEED=7\n" in first
    assert "number=1000," in first
    assert "`make test SEED=7`" in first
    again, _ = examples("slow", "--hypothesis-seed=7", "-k", "slow")
    assert again == slow
    fresh, printed = examples("slow", "-k", "slow")
    assert fresh != slow
    assert "laws: SEED=" in printed
