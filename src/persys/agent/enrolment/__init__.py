"""How a node joins a cluster and proves its identity.

join.py  `persys-agent join`: exchanges a join token for a certificate and writes the settings
tls.py   opens the certificate of the agent, renews it, and derives the node id from it

Called by `__main__.py` (join) and `app.py` (tls).
"""
