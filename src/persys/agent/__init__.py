"""persys-agent: the process on each node. Carries out orders of the scheduler and reports what runs.

The agent decides how an order is carried out, never whether or where. An order passes once through these
folders, in reading order:

    api/          the gRPC service, called directly or through the control stream
    workloads/    accepts orders, decides the next step and performs it until the workload has settled
    journal/      the local SQLite journal: orders, status, actions, deletion markers
    runtimes/     Docker, Compose and VMs
    volumes/      managed volumes and their drivers
    images/       the store of VM images
    access/       logs, exec and consoles
    node/         host, capabilities, usage
    uplink/       registration, heartbeats and contact with the scheduler

    app.py                 opens the environment and runs the agent
    components.py          wires the components
    ports.py               the interfaces of runtimes, volumes and host
    settings.py            the settings
    garbage_collection.py  removes artefacts without a workload
    metrics.py             metrics and /health
    credentials.py         registry and git credentials
    join.py                `persys-agent join`: obtains the certificate of the node
    tls.py                 the TLS certificate of the agent and the node id in it

Started by systemd or by `persys up`. The simulation runs it with its own `components.Environment`.
"""
