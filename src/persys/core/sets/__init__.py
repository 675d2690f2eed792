"""Sets: which members exist, and how they are updated. Pure decisions; `scheduler/sets` acts.

situation.py  the input and the output of a decision
changes.py    what users change: apply, scale, pause, resume, promote, undo, start, stop, delete
checks.py     which sets are valid
members.py    ids and numbers of members, and their intents from the template
phases.py     the transitions of a rollout
gate.py       whether an updated member has proven itself
slots.py      the members by index: what the rules of a decision read and return
replicas.py   rules for the number of members: surplus, extra, missing and stopped ones
updates.py    rules of a rollout: start, judge, update, pause, complete
rollout.py    `decide`: the tables of rules; members to create, update and delete now
forecast.py   all changes until a rollout is complete, for plans
autoscale.py  the number of replicas that metrics request

The scheduler, its queries and the simulation call it. It imports placement, the seeds of VMs and model.
"""
