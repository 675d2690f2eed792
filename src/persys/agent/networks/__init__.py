"""Networks across nodes, on this node: devices, firewall, addresses and names.

`devices.py`         reads and changes devices and the firewall
`members.py`         the addresses of workloads, in the journal
`docker_networks.py` the networks of Docker, and the ports of containers
`resolver.py`        DNS for members
`controller.py`      compares the configuration with the node, and repairs differences

`agent/api` stores the configuration that the scheduler sends; `agent/workloads` waits for a network before it
creates or starts a member. `core/networks` decides.
"""
