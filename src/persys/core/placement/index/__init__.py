"""The index of all nodes for placement, updated with each reservation.

    node_slot.py      one node: attributes, reservations, storage pools, rank
    group_counts.py   members of placement groups, per node and per label
    arrays.py         values of all nodes in arrays, for the search of all nodes
    ranking.py        eligible nodes in placement order, cached per kind of requirements
    node_index.py     `NodeIndex`, which keeps all of them up to date

The filters, the score and the searches of core.placement read it; scheduler/state/cluster.py writes it.
"""
