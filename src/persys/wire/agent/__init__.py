"""The agent contract (`persys.agent.v1`): the scheduler calls agents.

Called by the scheduler's dispatch and by the agent's API. Third-party agents and schedulers use it too.

`messages.py`        orders, statuses, actions, intents, logs and exec
`spec.py`            container and Compose specs, decoded and encoded; fields that the scheduler sets
`vm.py`              VM specs, decoded and encoded
`networks.py`        the network configuration of a node
`legacy_agents.py`   interprets the messages of third-party agents; the only place that matches texts
"""
