"""GitHub webhooks on the public port: a push redeploys the workloads that follow its branch.

    github.py        verifies deliveries: signature, age, duplicates
    push_queue.py    the persistent queue of accepted pushes, and the result of the last push
    redeploy.py      processes the queue of each cluster, and GET /api/v1/gitops

Wired by `app.py`; the queue is stored in `database.py`.
"""
