"""`python -m persys.sim.nodepools`: simulate a year of load on a node pool, and print the result."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from persys.sim.nodepools.report import plot
from persys.sim.nodepools.year import HOURS_OF_YEAR, Year


def main(argv: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m persys.sim.nodepools", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of load and faults (default: 1)")
    parser.add_argument("--hours", type=int, default=HOURS_OF_YEAR, help="default: a year")
    parser.add_argument("--plot", type=Path, help="write the plot as SVG to this file")
    options = parser.parse_args(argv)
    report = Year(options.seed, options.hours).run()
    for line in report.lines():
        print(line)
    if options.plot is not None:
        options.plot.write_text(plot(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
