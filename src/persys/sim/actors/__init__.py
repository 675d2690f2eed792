"""Actors of a run besides schedulers and agents.

    users.py        users and operators that send requests
    set_users.py    users of sets and jobs
    operator.py     the operator during a loss of the store
    intruders.py    hostile nodes and falsified heartbeats

Started by `world.py`.
"""
