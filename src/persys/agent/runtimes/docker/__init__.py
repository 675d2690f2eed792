"""Containers on the Docker Engine. `compose/` uses most modules too.

`runtimes.detect` builds the runtime; the steps of an order in `agent.workloads` call it. `agent.access` reads
logs and runs commands.

    runtime        the container runtime
    engine         calls to the Docker Engine API; the only module that imports aiodocker
    mapping        orders and containers in Docker's form; names and labels of the agent
    events         events of containers, and what they tell without a call
    pull           images from registries, with credentials
    start          start a container, and the reason of a failed start
    deviations     networks, ports, limits and name of a running container, and their repair
    config_files   files and secrets of containers
    archive        files of a container as tar archives
    exec_logs      logs and exec of containers
    log_frames     Docker's log stream format
    usage          CPU, memory, disk and network usage
    disk_limits    measures disk usage and applies disk_gb
    garbage        lists and removes everything the agent created, for garbage collection
"""
