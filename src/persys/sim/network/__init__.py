"""The simulated network.

    network.py    unary calls with delay, loss, duplicates and partitions
    stream.py     bidirectional streams, which break like TCP connections
    channel.py    a gRPC channel over both, for the generated stubs

Used by `fakes/`, `actors/` and `world.py`.
"""
