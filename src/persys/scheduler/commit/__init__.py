"""All writes to the store.

transaction.py  records to write and delete together, the update of memory, size limits
versions.py     the version of every stored record; numbers and trims events
committer.py    commits queued transactions in groups, guarded by versions and the leader's fence
store_watch.py  reads everything again when memory may be stale; probes a store that failed
store_guard.py  wraps the store: every call ends, and raises only the errors of the port

Every folder that changes records calls `Committer.commit`.
"""
