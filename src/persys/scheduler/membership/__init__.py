"""Nodes: registration, heartbeats, leases, removal. `core/registration.py` and `core/nodes.py` decide.

nodes.py               registers nodes, processes heartbeats, applies commands of operators
leases.py              renews leases, and marks nodes with an expired lease as not ready
node_records.py        writes node records with their events
heartbeat.py           decodes heartbeats
reachability.py        which nodes reply to calls, and which runtimes are healthy
node_removal.py        removes a node with all its records in bounded transactions
removed_nodes.py       refuses and revokes the certificates of removed nodes
certificate_expiry.py  an event for each certificate that was not renewed

`api/nodes.py` calls it. It wakes workloads in `reconcile` when their node changes.
"""
