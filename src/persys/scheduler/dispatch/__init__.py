"""Orders to agents, and what comes back.

dispatcher.py    executes effects: one queue per node, every reply becomes an observation
agent_client.py  calls to agents, over a control stream or a channel to their endpoint
order_sender.py  sends orders, alone or in batches, and reads the replies
tunnel.py        control streams as channels for calls; tunnel_call.py: one call on such a stream
observations.py  the single entry point of what nodes report; stores what they did for a workload
fan_out.py       calls many nodes concurrently
image_upload.py  uploads one image to many nodes

`reconcile` and `drift` submit effects; `api` uses the client for logs, images and volumes.
"""
