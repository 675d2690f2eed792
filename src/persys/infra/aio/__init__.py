"""Building blocks for concurrent work.

`supervisor.py` contains unexpected exceptions in the work for one key; every shell loop that handles many
workloads, nodes, streams or records uses it.
`flow.py` bounds what is on its way, and what waits, for one call on a shared stream.
"""
