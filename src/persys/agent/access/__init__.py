"""Access to workloads: logs, exec in containers and serial consoles of VMs.

sessions.py  entry point: validates a request, limits the number of sessions, relays exec
logs.py      logs of containers and stacks, with the stored tail of replaced containers
console.py   console logs and console sessions of VMs

Called by `api/service.py` (StreamLogs, Exec). `workloads/steps.py` stores a log tail before it removes a
container.
"""
