"""gRPC channels of the client.

    channel.py         opens channels, makes calls with a deadline, translates errors
    interceptors.py    adds the token to calls, reports the mode of the scheduler; imported only when used

Used by the call groups and by `agent.py`.
"""
