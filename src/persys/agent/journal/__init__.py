"""The local journal of the agent: what must survive a crash or a reboot.

records.py        the stored records, and a change with its SQL statements
store.py          `Journal`: an SQLite file with a copy in memory, group commit, and the health of its disk
shared_commit.py  commits the orders of a batch together
secrets.py        encrypts secret values before they are written
recorder.py       `Recorder`: records steps, status and actions of a workload, with secrets redacted

`workloads/` writes through the recorder and the journal; all other parts read the copy in memory.
"""
