"""The scheduler: stores the intent of users, places workloads on nodes and sends orders to agents.

server.py      the process: gRPC server, and replicas that are standby or leader
app.py         one replica, composed of the parts below: its loops and its API
build.py       builds the parts; signals.py: what they report to parts that were built later
settings.py, ports.py

Folders, in the order of a request:
api/           the AgentControl service, from authorization to the handlers
ha/            leader election, standby, forwarding to the leader
reconcile/     intent in, decisions out: the loop around `persys.core.reconcile`
commit/        group commit, and what keeps memory equal to the store
state/         the cluster in memory, and the table of record types
dispatch/      orders to agents, and their replies
membership/    registration, heartbeats, leases and removal of nodes
services/      names with the healthy members of sets and labelled workloads behind them
nodepools/     machines of providers that join as nodes when workloads wait
drift/         orphans, tombstones and other differences between nodes and records
recovery/      modes of the control plane, snapshots, rebuild, repair of records
secrets/, auth/, discovery/, queries/, metrics/

Decisions are made in `persys.core`; this package reads, commits and sends.
"""
