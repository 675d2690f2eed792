"""The cluster state in memory, and the stored records it is loaded from.

records.py     RECORDS, the table of record types; every other list of record types is derived from it
memory.py      puts each type of record into memory and drops it
sync.py        loads a snapshot, follows the changes of a leader, encodes memory, lists what a rebuild keeps
quarantine.py  unreadable stored records, and the writes they block

`app` loads and follows, `snapshots` and `recovery` encode, `committer` checks the quarantine before a write.
"""
