"""Accepts orders and carries them out: the reconcile loop of the agent.

orders.py          validates an order, compares it with the journal and stores it
node_policy.py     which specs this node accepts: privileges and host paths
admission.py       refuses new workloads while the node is full
work_queue.py      the queue of workloads to inspect
worker.py          `Worker`: inspects a workload, decides with `core.agent.next_step`, performs the step
steps.py           performs one step with the runtime and the volumes; reports the progress of pulls
health_probes.py   HTTP and TCP health checks
runtime_watch.py   runtime events, pings and the periodic pass over all workloads
crash_recovery.py  resumes orders after a crash and quarantines an order that crashes the agent
failpoints.py      the points at which tests crash the agent

Called by `api/service.py`. `journal/recorder.py` stores the results.
"""
