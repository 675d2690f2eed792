"""The cluster's records in memory: what is stored, how it gets into memory and back.

records.py     RECORDS, the table of record types; every other list of record types is derived from it
memory.py      how each type of record gets into memory and out of it
sync.py        load a snapshot, follow changes of another scheduler, encode memory, list what a rebuild keeps
quarantine.py  stored records that cannot be read, and what must not be done because of them

`app` loads and follows, `snapshots` and `recovery` encode, `committer` asks the quarantine before it writes.
"""
