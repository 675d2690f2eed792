"""The events of a simulated run.

`faults.py` is the table of all faults: how each is drawn from a seed, and how it is injected.
"""
