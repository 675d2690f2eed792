"""Who acts in a simulated run besides schedulers and agents.

`intruders.py` has the peers that no operator wants: a clone of a node, and a node that reports anything.
"""
