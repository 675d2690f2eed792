"""High availability: one scheduler leads, the others follow and forward.

leader_key.py     the leader key in the store, whose version is the fence, and the cluster marker
leader_lease.py   renews the leader's lease and tracks how recently it was confirmed
standby.py        follows the leader's writes, and takes the key when there is no leader
leader_client.py  the connection to the leader
forwarding.py     handles an RPC here or forwards it to the leader

`server` runs replicas in these roles; `commit` writes with the fence.
"""
