"""`persysctl doctor`: checks for common problems of an installation, each with its fix.

In reading order:

- `run.py`: runs the checks and prints the findings
- `finding.py`: the result of one check
- `connection.py`: the context file, the client certificate, and the connection to the server
- `cluster.py`: clocks, mode, nodes, versions, workloads, errors and unreadable records
- `host.py`: the agent, Docker, libvirt and disk space of this machine

Called through the command table. A check only reads.
"""
