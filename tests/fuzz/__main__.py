"""Search for cases in which the engine is wrong or too slow."""

import argparse
import random
import sys
from collections.abc import Sequence

from tests.fuzz import cel_agreement, cel_costs, models

PARTS = {"models": models.run, "CEL agreement": cel_agreement.run, "CEL costs": cel_costs.run}


def main(arguments: Sequence[str]) -> int:
    """Run each part for the same share of the time; return the exit code, 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=60, help="time for all parts (default: 60)")
    parser.add_argument("seed", type=int, nargs="?", default=random.randrange(2**32), help="default: random")
    given = parser.parse_args(arguments)
    google = "" if cel_agreement.google() else " (without Google's engine: cel-expr-python is not installed)"
    print(f"seed {given.seed}, {given.seconds:g} s{google}", flush=True)
    failures = 0
    for name, run in PARTS.items():
        found = run(given.seconds / len(PARTS), given.seed)
        failures += len(found)
        print(f"{name}: {len(found) or 'no'} failure{'' if len(found) == 1 else 's'}", *found, sep="\n", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
