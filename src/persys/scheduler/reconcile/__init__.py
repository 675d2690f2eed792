"""From intent to decision: the loop around `persys.core.reconcile`.

intent.py                   parses and checks apply, delete, retry and redeploy
suggestions.py              suggestions of automation policies, and their approval
reconciler.py               when a decision about a workload is made, and its lock
decider.py                  one decision: read, decide, commit, follow up
change_batches.py           changes of many workloads in one pass
situation_builder.py        the input of a decision: records, observations, node and copies
decision_to_transaction.py  the records, events, drift and memory update of a decision
operation_log.py            one log line per operation and decision
resync.py                   periodic resync, in case an event was missed; returns to tier 0

`api` submits intents; observations, nodes and timers wake workloads.
"""
