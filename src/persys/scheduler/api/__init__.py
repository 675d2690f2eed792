"""The AgentControl service. The table of its RPCs is `wire/methods.py`.

authorization.py  checks that an agent acts only for its own node
chain.py          the interceptors of every RPC: mode, audit, limits, refusals, metrics
methods.py        how each RPC refuses, derived from its response message
context.py        the service class, and what all handlers share
service.py        builds the service from the handlers below
workloads.py, nodes.py, control_stream.py, drift.py, events.py, planning.py, suggestions.py, logs_exec.py,
volumes.py, images.py, secrets.py, tokens.py, diagnostics.py, recovery.py: one module per group of RPCs

A handler decodes the request, calls the feature's folder and encodes the response. `app` builds the service,
`ha/forwarding.py` calls it.
"""
