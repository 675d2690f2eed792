"""Workloads of another cluster that run here: their names, what they may contain, and when they are stopped.

    cluster_ids.py    ids of clusters, and the prefixes of their workloads in other clusters
"""
