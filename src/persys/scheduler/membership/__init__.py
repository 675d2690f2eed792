"""Nodes: registration, heartbeats, leases, removal; and contacts of other clusters.

nodes.py               registers nodes, processes heartbeats, applies commands of operators
leases.py              renews leases, and marks nodes with an expired lease as not ready
node_records.py        writes node records with their events
heartbeat.py           decodes heartbeats
reachability.py        which nodes reply to calls, and which runtimes are healthy
node_removal.py        removes a node with all its records in bounded transactions
removed_nodes.py       refuses and revokes the certificates of removed nodes
home_contacts.py       stops workloads of other clusters that are not in contact
certificate_expiry.py  an event for each certificate that was not renewed

`core/registration.py`, `core/nodes.py` and `core/federation/home_contacts.py` decide.
`api/nodes.py` calls it. It wakes workloads in `reconcile` when their node changes.
"""
