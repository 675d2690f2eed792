"""Node pools in simulated time: a provider with faults, and a year of hourly load.

provider.py  a simulated provider: throttling, calls without an answer, machines that never boot or vanish
control.py   one node pool under control: records, decisions and calls, with a crash at any step
year.py      a year of load on a fixed cluster and a node pool: spend, waiting time, lost work
report.py    the result of a year, and its plot as SVG
__main__.py  `python -m persys.sim.nodepools`: runs a year and prints it

Tests run a sample. docs/how-to/node-pools.md shows a year.
"""
