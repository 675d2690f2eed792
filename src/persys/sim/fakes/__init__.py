"""The environment of the real agents and schedulers.

    docker.py           the runtimes of a node: containers, stacks and VMs that survive agent crashes
    engine_faults.py    the Docker engine with injected faults
    runtime.py          runtimes and volumes behind the ports of the agent
    journal_disk.py     the disk of a node with the agent's journal
    node.py             a node with the real agent on it
    store.py            the store, and one scheduler's view of it with faults
    scheduler.py        a host of a single scheduler
    ha_scheduler.py     a host of one of several schedulers
    federated_node.py   a node with the real federation process, and its calls to the remote cluster
    machine_provider.py the provider of a node pool, with faults

Started by the worlds; the checks observe it through `docker.Observer`.
"""
