"""Read-only answers from memory.

views.py     nodes and workloads as the API shows them
explain.py   why a workload is where it is, and the free capacity
plan.py      a dry run of applies
set_plan.py  a dry run of applies of sets

`api/workloads.py`, `api/nodes.py` and `api/planning.py` call it.
"""
