"""The commands of persysctl. `persysctl GROUP COMMAND` is in the module with the name of the group.

A command is a function that takes the parsed options and returns an exit code. It is named by a string in
`framework/tables/` and imported when it runs, so a module may have no importer.

- `node.py`, `workload.py`, `cluster.py`: the main groups
- `federation.py`, `federation_setup.py`: other clusters as nodes; the checks and files of `add`
- `wait.py`: `--wait` of apply, delete, start, stop, retry and redeploy
- `workload_status.py`: texts about the status of a workload, and the next command to run
- `workload_change.py`: requests changes, waits for them and reports each
- `lookup.py`: whether a name is a workload, a set or a job
- `set.py`, `scale.py`, `rollout.py`: sets; `set_status.py`, `set_wait.py`, `set_change.py` as for workloads
- `job.py`, `job_wait.py`: jobs and their runs; `member_logs.py`: the output of all members
- `service.py`: services and their endpoints
- `schema.py`: the JSON schema of spec files
- `run.py`, `edit.py`, `init.py`: a container from options, a spec in an editor, spec files to start from
- `explain.py`, `plan.py`, `capacity.py`: placement, without a change
- `events.py`, `logs.py`, `exec.py` (also console), `top.py` (also stats): a running cluster
- `port_forward.py`, `cp.py`: ports and files of a workload
- `drift.py`, `orphans.py`, `recovery.py`, `snapshot.py`, `record.py`: differences, recovery and stored state
- `nodepool.py`: machines of providers
- `image.py`, `volume.py`, `secret.py`, `gitops.py`, `suggestion.py`: what workloads use
- `certificate.py`, `token.py`, `audit.py`: access
- `context.py`, `agent.py`, `help.py`, `version.py`: this machine, one agent, help, the version
"""
