"""Building blocks for concurrent work, used by all shells.

`supervisor.py`      contains unexpected exceptions in the work for one key; restarts loops of a process
`owned_work.py`      finishes accepted work although its caller disconnects
`task_group.py`      a task group that raises its first failure
`keyed_queue.py`     work queues: serial per key, parallel across keys
`keyed_lock.py`      a fair lock per key
`keyed_passes.py`    passes over keys when they change or are due: paced, contained, one at a time per key
`adaptive_limit.py`  as many calls at once as an engine can take
`group_commit.py`    batches concurrent writes into one
`flow_control.py`    messages in flight and unread of one call on a shared stream
`offload.py`         time slices and threads for long computations
`path_calls.py`      file system calls with a deadline, on paths that may hang
"""
