"""The AgentControl service. The table of its RPCs is `wire/methods.py`.

service.py         the service, built from the handlers below
chain.py           the interceptors of every RPC: mode, audit, limits, refusals, metrics
methods.py         what all handlers share: names, the check of required fields, and how each RPC refuses
workloads.py       apply, delete, retry, redeploy, read, explain, plan; suggestions
nodes.py           registration, heartbeats, commands of operators; control_stream.py: both on one stream
drift.py           drift and orphans
logs_exec.py       logs and exec
storage.py         volumes and VM images
secrets_tokens.py  secrets, tokens, the identity of the caller
diagnostics.py     events, internal errors, quarantined records
recovery.py        mode, snapshots, recovery

The RPCs of node pools are in `scheduler/nodepools/pool_api.py`.

A handler decodes the request, calls the feature's folder and encodes the response. `app` builds the service,
`ha/forwarding.py` calls it.
"""
