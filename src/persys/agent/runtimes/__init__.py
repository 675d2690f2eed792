"""The runtimes of a node: containers, Compose stacks and VMs.

Each runtime implements `agent.ports.Runtime`: inspect, pull, create, start, stop, remove, repair, replace and
discard one workload. `agent.workloads` calls them through the steps of an order. Runtimes decide how an order
is carried out, never whether.

    detect       detects and builds the runtimes, at start and while the agent runs
    docker/      containers on the Docker Engine, and what stacks share with them
    compose/     Compose stacks
    vm/          VMs on libvirt
    bind_guard   checks bind mounts before and after a start
    host_paths   opens host paths without following links
"""
