"""gRPC servers and channels, with authorization.

Called by the scheduler and the agent for their servers, and by all processes for their channels.

`grpc_server.py`         options of servers and channels; health and reflection
`message_sizes.py`       maximum message sizes; separate, because persysctl starts faster without gRPC
`authorizer.py`          authenticates and authorizes the caller of each RPC
`bearer.py`              bearer tokens in call metadata
`authorized_service.py`  wraps a service: authorization, parsing, contained exceptions
`rotating_channel.py`    a channel that reconnects after a certificate renewal
`parsed_replies.py`      fails calls whose response cannot be parsed
"""
