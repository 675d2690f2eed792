"""Placement: which node gets a workload, and for every other node why not."""
