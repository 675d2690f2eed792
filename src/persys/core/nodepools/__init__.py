"""Node pools: when machines are created, drained and destroyed. Pure decisions; `scheduler/nodepools` acts.

steps.py      what a decision reads and returns: nodes, instances, waiting workloads and steps
decision.py   `decide`: all steps of one pool now
lifecycle.py  the next step of one machine, from its record, its node and its instance
growth.py     which machines to create for waiting workloads, within the limits of the pool
demand.py     which waiting workloads a new machine would take, and which pool grows for each of them
outcome.py    the records that a step stores
checks.py     which pools are valid

The scheduler, its queries and the simulated year call it. It imports placement and model.
"""
