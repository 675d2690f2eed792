"""The rows of the command table, one module per area.

In reading order:

- `command.py`: the row of a command, and of a group of commands
- `workloads.py`: workloads, and what they use: volumes and images
- `sets.py`: sets with their rollouts, jobs with their runs, services
- `nodes.py`: nodes, agents, federated clusters and node pools
- `cluster.py`: events, drift, snapshots, recovery and checks
- `access.py`: tokens, certificates, secrets, contexts, completion and the version

`framework/command_table.py` puts them in the order of the help.
"""
