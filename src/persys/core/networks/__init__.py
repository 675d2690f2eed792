"""Networks: subnets and slices, who may join, names and rules, and the configuration of each node.

    subnets.py        the subnet of a network, and the slices of it that belong to nodes
    members.py        members of a network with their addresses; who may join
    configuration.py  what each node of a network gets: peers, slices, names and rules
    reach.py          whether one workload reaches another, and what blocks it

Called by the scheduler; the agent assigns addresses from the slices of its node.
"""
