"""persys-gateway: the REST API and the dashboard in front of the schedulers of one or more clusters.

It authenticates users, forwards their requests to a scheduler, and takes no decision about workloads.

    settings.py    the settings of the process
    app.py         builds and runs all components
    tls.py         the certificate of the gateway, and the TLS context of its port
    http/          from an HTTP request to an RPC request and back: the request pipeline
    routes/        the routes of the API
    upstream/      the clusters and their schedulers, and how calls reach them
    webhooks/      GitHub webhooks: pushes that redeploy workloads
    dashboard/     the web dashboard
    audit.py       the audit log
    database.py    the SQLite file of the audit log and the webhook queue
    usage.py       the usage of nodes and workloads in the last 24 hours
    metrics.py     Prometheus metrics

`__main__.py` starts the process. Clients are browsers, `persysctl --api` and `persys.client`.
"""
