"""Decides the next action for one workload: tables of named rules, from intent, assignment and observation.

    situation.py     the input and the output of a decision: `Situation`, `Decision`; the type of a rule
    decide.py        `decide` and the tables of rules for existing and deleted workloads
    assign.py        choose a node; changed requirements; a node that rejects the workload
    evacuate.py      leave a lost or draining node, and when that is safe
    return_home.py   return from a higher tier to tier 0
    converge.py      stay on the node: compare the observation with the goal
    failure.py       react to a failure: retry or give up
    retry.py         the time of the next retry
    delete.py        remove the copy until none can exist
    dispatch.py      the goal of an order, and the last order that was sent
    effects.py       the effects that the scheduler performs
    task_history.py  results from the task lists of agents, and the stored action history

scheduler/reconcile calls `decide` and stores its decision; scheduler/dispatch performs the effects.
"""
