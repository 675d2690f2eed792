"""What happens when the store fails or loses its records. `core/recovery` decides.

mode.py           normal, degraded or recovery mode
snapshots.py      all records as one file
recovery.py       restores a snapshot, rebuilds from agents, or accepts the store as it is
pending_nodes.py  nodes that tried to register meanwhile
record_repair.py  inspects and deletes unreadable records

`commit/store_watch.py` sets the mode, `api/recovery.py` calls the rest.
"""
