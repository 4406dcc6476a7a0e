"""Search for cases in which the engine is wrong or too slow: `python -m tests.fuzz [SECONDS [SEED]]`."""

import random
import sys
from collections.abc import Sequence

from tests.fuzz import cel_agreement, cel_costs, models

PARTS = {"models": models.run, "CEL agreement": cel_agreement.run, "CEL costs": cel_costs.run}


def main(arguments: Sequence[str]) -> int:
    """Give each part the same share of the time; return the exit code, 1 if anything was found."""
    seconds = float(arguments[0]) if arguments else 60
    seed = int(arguments[1]) if arguments[1:] else random.randrange(2**32)
    print(f"seed {seed}, {seconds:g} s", flush=True)
    failures = 0
    for name, run in PARTS.items():
        found = run(seconds / len(PARTS), seed)
        failures += len(found)
        print(f"{name}: {len(found) or 'no'} failure{'' if len(found) == 1 else 's'}", *found, sep="\n", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
