"""The cluster in memory, and the stored records it is loaded from.

cluster.py            ClusterState: workloads, nodes, reservations, and what was observed
members.py            the members of sets and of runs, by their owner
service_members.py    the members of services, by service and by workload
runs.py               the runs of jobs, by their job
records.py            RECORDS, the table of record types; every other list of record types is derived from it
memory.py             puts each type of record into memory and drops it
sync.py               loads a snapshot, follows changes, encodes memory, lists what a rebuild keeps;
                      StateLoader does so for a running scheduler
quarantine.py         unreadable records, and the writes they block
event_log.py          the stored events, and their watchers

`commit` and `ha` keep it equal to the store; everything else reads it.
"""
