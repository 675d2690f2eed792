"""Requests of users: how an apply, a suggestion or a push changes the intent of a workload.

    apply.py          apply, start, stop, delete, retry and redeploy
    ownership.py      which owner changes a member, and which ids are taken
    diff.py           the action of an apply, and its effect on the running copy
    field_changes.py  the changed fields of an apply
    suggestions.py    suggestions of automation policies
    gitops.py         which workloads a git push concerns

scheduler/reconcile/intent.py and suggestions.py apply them; scheduler/queries/plan.py and the gateway use the
rest.
"""
