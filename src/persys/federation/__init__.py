"""persys-federation: joins another cluster to this one as a node.

It is an agent whose runtime is another cluster.

    settings.py     environment variables and flags
    app.py          builds the environment of the agent and runs it
    ports.py        what is needed from the remote cluster
    connection.py   the connection to the remote cluster; token and certificates are read again
    remote.py       calls to the remote cluster, through its scheduler or gateway
    mapping.py      orders as requests to the remote cluster, and its views as artefacts
    events.py       the event stream of the remote cluster
    runtime.py      the runtime, volumes and garbage of the agent, on the remote cluster
    access.py       logs, exec and usage of remote workloads
    metrics.py      offloaded workloads, refusals, spend
    capacity.py     the capacity of the remote cluster as that of one node
"""
