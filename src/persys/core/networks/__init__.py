"""Networks across nodes: decisions of the scheduler and of the agents.

`addresses.py`  the addresses of members on one node, from the slices of the node
`devices.py`    the bridge, VXLAN device and forwarding entries of a network, and how to reach them
`firewall.py`   the nftables rules of a node
"""
