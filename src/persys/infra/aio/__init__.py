"""Building blocks for concurrent work.

`supervisor.py` contains unexpected exceptions in the work for one key; every shell loop that handles many
workloads, nodes, streams or records uses it.
"""
