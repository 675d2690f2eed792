"""`persys bench`: measures this machine, every figure as a ratio to its floor.

In reading order:

- `bench.py`: the command, the facts about the machine, the table, and the page with plots
- `figures.py`: the measurements and their floors
- `local_cluster.py`: a scheduler and an agent on free ports, and the Docker socket

Called by `persys.py` only. `bench/` in the repository measures more, against bounds.
"""
