"""Networks: subnets and slices, who may join, names and rules, and the configuration of each node.

    subnets.py        the subnet of a network, and the slices of it that belong to nodes
    members.py        members of a network with their addresses; who may join
    configuration.py  what each node of a network gets: peers, slices, names and rules
    reach.py          whether one workload reaches another, and what blocks it
    addresses.py      the addresses of members on one node, from the slices of the node
    devices.py        the bridge, VXLAN device and forwarding entries of a network on a node
    firewall.py       the nftables rules of a node

The scheduler calls the first four, the agent the last three.
"""
