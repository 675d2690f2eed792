"""The routes of the REST API. Most are generated from the route table in `wire/rest`.

    unary.py      unary RPCs: JSON in, JSON out; Idempotency-Key
    streams.py    events as server-sent events, logs and snapshots as byte streams
    uploads.py    snapshots and VM images
    exec.py       exec over a WebSocket
    gateway.py    routes of the gateway itself: health, metrics, clusters, overview, audit log
    openapi.py    the OpenAPI document, with the JSON Schema of the messages

Registered by `app.py`; every handler runs in the pipeline of `http/middleware.py`.
"""
