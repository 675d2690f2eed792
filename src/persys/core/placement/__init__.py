"""Placement: chooses the node of a workload, and gives the reason for every other node.

    requirements.py   what a workload needs: amounts, host ports, traits and rules
    tiers.py          when a workload may use nodes of higher tiers, such as federated clusters
    constraints.py    conditions on labels and facts of nodes: parse, evaluate, format
    filters.py        why one node is rejected for one workload
    score.py          the order of the nodes that fit
    select.py         the choice: `place` returns Placed or Unplaceable
    search.py         how the best of many nodes is found without checking each one
    index/            the nodes with their free capacity and reservations, in memory
    placer.py         placement as core.reconcile uses it; hypothetical changes of the index
    pending_queue.py  workloads that wait for capacity
    explain.py        the result for each node, and the smallest change that would help
    filter_pass.py    all filters over many nodes at once, for explain.py
    capacity.py       how many more workloads fit; what a lost node means

core.reconcile calls it through `Placer`; scheduler/state holds the index and the queue; scheduler/queries
explains.
"""
