"""Sets in a running scheduler: the records that users change, and the loop that changes their members.

member_states.py  the members of a set as its decision sees them, and the nodes of a set with one per node
sets.py           what users change: one commit with record, revision and event
controller.py     the loop of the leader: decide, store the record, change the members
autoscaler.py     the loop of automatic scaling, with queries of a Prometheus server
set_views.py      the views of sets, and their explanation
set_api.py        the RPCs, and the checks of what callers send

`persys.core.sets` decides; `reconcile/change_batches.py` changes the members.
"""
