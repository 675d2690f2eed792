"""The plan of a run.

    plan.py           a plan: its shape and its events, as plain data
    generate.py       generates a plan from a seed
    faults.py         the table of all faults: how each is drawn and injected
    draws.py          draws the target, duration and amount of a fault
    specs.py          the specs that users apply
    set_specs.py      the sets and jobs that users apply
    set_requests.py   the requests of users for sets and jobs, and faults during rollouts

`run.py` executes a plan. To add a fault, add one row to the table in `faults.py`.
"""
