"""The decisions of an agent: which orders it accepts, the next step of each, and what it reports.

    admission.py       whether an order is accepted, or resumed after a crash
    progress.py        what a decision reads and returns: artefact, progress, outcome; counts restarts
    next_step.py       the next step towards the state of an order, or that it is settled
    run_limits.py      stops a workload at its disk limit and its deadline; starts a job once
    health.py          health from consecutive probes
    deviations.py      how a running container differs from its configuration
    compose_status.py  the state of a stack from its containers
    compose_policy.py  which Compose documents and host paths a node accepts
    cloud_init.py      the cloud-init seed of a VM
    storage.py         pools, changes of volumes, headers of disk files
    report.py          status metadata, notes, usage, pull progress and actions
    garbage.py         what may be removed from the node

The agent process calls it; core.reconcile uses the codes that both sides share.
"""
