"""Actors of a simulated run besides schedulers and agents.

`intruders.py` has unwanted peers: the clone of a node, and a node that sends arbitrary reports.
"""
