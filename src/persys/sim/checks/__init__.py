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
    owners.py           the checks of sets and jobs, in addition to all others
    sets.py             rollouts: availability, batches, rollbacks, members
    jobs.py             occurrences, attempts, and the end of runs
    federation.py       copies of home workloads in the remote cluster, and what is left there
    owners.py           a cluster with sets and jobs, in addition to all others
    sets.py             rollouts: healthy members, failed revisions, and how they end
    jobs.py             occurrences and attempts of jobs
    node_pools.py       machines of a node pool: their cost and removal, and what is left of them

Liveness and background checks, called by `run.py`:

    liveness.py         convergence without faults
    watchers.py         leader election, standbys, control streams, image pulls
"""
