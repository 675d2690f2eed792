"""Building blocks for concurrent work.

`supervisor.py` contains unexpected exceptions in the work for one key; every shell loop that handles many
workloads, nodes, streams or records uses it.
`parts.py` runs the long-lived loops of a process and says which of them may end it.
`owned.py` finishes accepted work although its caller left.
`path_calls.py` calls the file system on paths that others name, with a deadline.
`flow.py` bounds what is on its way, and what waits, for one call on a shared stream.
"""
