"""Workloads of another cluster that run here: their names, what they may contain, and when they are stopped.

    cluster_ids.py    ids of clusters, and the prefixes of their workloads in other clusters
    scope.py          what a caller whose token has a prefix may not set
    home_contacts.py  workloads whose home cluster is silent

Used by auth/prefix_scope.py, reconcile/intent.py and membership/home_contacts.py of the scheduler.
"""
