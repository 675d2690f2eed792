"""The scheduler API over the REST API of a gateway.

    stub.py          the methods of the gRPC stub, generated from the route table
    streams.py       streaming calls as iterators
    exec.py          exec over a WebSocket; imported only for exec
    connection.py    the URL and credentials of a gateway
    errors.py        problem details (RFC 9457) to errors

`calls.py` uses it when the target is a gateway.
"""
