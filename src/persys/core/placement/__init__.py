"""Placement: chooses the node of a workload, and gives the reason for every other node."""
