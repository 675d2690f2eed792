"""Decisions as pure, synchronous functions. Time and random numbers are arguments.

    reconcile/   the next action for one workload: `decide` and its rules
    placement/   the choice of a node
    intent/      requests of users
    nodepools/   when machines of node pools are created and destroyed
    networks/    subnets, slices, and the network configuration of nodes
    services/    where clients reach the members of services
    recovery/    modes, and the merge of records after a loss
    agent/       the decisions of an agent
    auth/        permissions, certificates and tokens
    federation/  workloads of another cluster that run here

    nodes.py            liveness, maintenance and removal of nodes
    registration.py     which agent may act as a node
    drift.py            differences between records and nodes
    epochs.py           the epoch counter and proofs of assignment
    secrets.py          references to secrets, and redaction
    dns_names.py        DNS names of schedulers and agents
    event_retention.py  which events are kept
    backoff.py, duration.py, numbers.py, bounded_yaml.py, terminal.py   shared values and formats

The processes (scheduler, agent, gateway, persys-ca) and the simulation call it. It imports only model.
"""
