"""Access to workloads: logs, exec in containers, serial consoles of VMs, ports and files.

sessions.py  entry point: validates a request, limits the number of sessions, relays exec
logs.py      logs of containers and stacks, with the stored tail of replaced containers
forward.py   connections to ports of containers and VMs
file_copy.py  files of containers as tar archives
console.py   console logs and console sessions of VMs

Called by `api/service.py` (StreamLogs, Exec, PortForward, CopyFiles). `workloads/steps.py` stores a log tail
before it removes a container.
"""
