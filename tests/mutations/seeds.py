"""Runs seeds of the simulation and stops at the first that breaks a promise, without shrinking it."""

import sys

from persys.sim.run import run
from persys.sim.scenario.generate import draw, shape_for


def main(seeds: list[int]) -> int:
    for seed in seeds:
        outcome = run(draw(seed, shape_for(seed)))
        if outcome.violation is not None:
            print(f"seed {seed}: {outcome.violation}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main([int(seed) for seed in sys.argv[1:]]))
