"""The checks of the promises.

Safety, at every event of the cluster:

    safety.py           receives all events; fencing, acknowledged requests, node removals
    context.py          the state that the checks share
    assignments.py      epochs, reservations, tombstones; orders follow from commits and are stored
    containers.py       starts, stops, copies and volumes
    agent_contact.py    contact between agents and schedulers, leases
    acknowledged.py     the states that user requests allow
    store_mirror.py     the decoded records of the store, and stale reads
    store_loss.py       a loss of all data in the store
    federation.py       copies of home workloads in the remote cluster, and what is left there

Liveness and background checks, called by `run.py`:

    liveness.py         convergence without faults
    watchers.py         leader election, standbys, control streams, image pulls
"""
