"""Recovery after the store was lost or restored from a backup.

    mode.py      the mode of the control plane (normal, degraded, recovery) from the responses of the store
    merge.py     the records after a restore or rebuild, merged with the reports of the nodes
    rollback.py  records that are older than the state of their nodes

scheduler/recovery calls mode and merge; core.reconcile calls rollback.
"""
