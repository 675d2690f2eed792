"""The data types of the domain. Stored records are `Struct`s: their field names are the stored JSON names.

    ids.py         identifiers, and which values are allowed
    workload.py    the intent of a user, orders to agents, and suggestions of automation policies
    spec.py        the specs of containers, Compose stacks and VMs
    placement.py   resources, placement rules, assignments and tombstones
    status.py      observations, failures, the stored status, retries and drift
    action.py      actions of agents, and their history
    feature.py     optional features of an agent
    node.py        nodes, their capabilities, leases, usage, volumes and images
    cluster.py     the mode of the control plane, its marker and its leader
    event.py       entries of the audit history
    identity.py    identities, callers and tokens
    role.py        roles and permissions, apart because persysctl needs them at start-up
    nodepool.py    node pools and their machines
    sets.py        sets: their templates, policies and rollouts
    job.py         jobs and their runs
    service.py     services: names with members behind them
    network.py     networks: subnets, slices, and the configuration of nodes
    secret.py      stored secrets, and references to them

Every other package imports it. It imports only errors.
"""
