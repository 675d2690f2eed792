"""The control contract (`persys.control.v1`): users and agents call the scheduler.

Called by the scheduler's API, the agent's uplink, the client and the spec file parser.

`messages.py`     desired states, capabilities, statuses, usage, actions
`spec_decode.py`  a spec of a user, validated and decoded into the model
`spec_encode.py`  a spec of the model, encoded; the reverse of `spec_decode.py`
`placement.py`    placement rules and taints
`nodepools.py`    node pools, their machines and steps
`sets.py`         sets, their templates, revisions and members
`jobs.py`         jobs and their runs
`services.py`     services and their endpoints
`planning.py`     explain, plan and capacity
`views.py`        events, suggestions, orphans and recovered workloads
"""
