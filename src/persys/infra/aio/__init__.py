"""Building blocks for concurrent work.

`supervisor.py` contains unexpected exceptions in the work for one key; every shell loop that handles many
workloads, nodes, streams or records uses it.
`parts.py` runs the long-lived loops of a process and decides which of them may end it.
`owned.py` finishes accepted work although its caller left.
`path_calls.py` calls the file system on paths that users set, with a deadline.
`flow.py` limits the messages in flight and unread of one call on a shared stream.
"""
