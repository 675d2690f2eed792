"""The clusters behind the gateway, and the calls to their schedulers.

    config.py           the cluster configuration: cluster.yaml, or one cluster from a setting
    cluster.py          one cluster: discovery, health checks, calls with failover
    scheduler.py        one scheduler: its gRPC connection and its health
    balancing.py        the order in which the schedulers of a cluster are tried
    single_flight.py    concurrent identical reads share one call
    batching.py         concurrent reads of single workloads become one call
    stream_buffer.py    a bounded buffer between a gRPC stream and an HTTP response

Called by the handlers in `routes/` and by `webhooks/redeploy.py`.
"""
