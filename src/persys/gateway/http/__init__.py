"""The HTTP side of a request: authentication, limits, parsing, and the form of responses.

    middleware.py       the pipeline of every request: authenticate, limit, run the handler, audit, log
    authentication.py   the caller by certificate or token, and the verification of tokens
    rate_limit.py       requests per second and open streams of each caller
    transcoding.py      path, query and JSON body to an RPC request message
    paging.py           `limit` and `cursor` of lists
    preconditions.py    If-Match and If-None-Match
    responses.py        JSON responses with ETag and compression
    problems.py         errors as problem details (RFC 9457)

Called by the handlers in `routes/`, `webhooks/` and `dashboard/`, and by `app.py`.
"""
