"""The gRPC service of the agent (`persys.agent.v1.AgentService`).

service.py        decodes each request, calls its use case, encodes the response; builds the authorizer
orders.py         the apply RPCs: one order, or a batch of orders
images.py         the image RPCs: list, add with progress, remove
tunnel_server.py  serves the same methods for calls that arrive through the control stream

Called by the scheduler, and by admins if the settings allow it. `components.py` builds it.
"""
