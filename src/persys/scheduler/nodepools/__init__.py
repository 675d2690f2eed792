"""Node pools: creates machines for waiting workloads, and destroys idle ones. `core/nodepools` decides.

pools.py       the pools as users change them: create, update, pause, delete
controller.py  the loop of the leader: one pass per pool, contained and independent of the others
provision.py   calls to providers: list, create with a join token and user data, destroy; VMs as machines
observed.py    what a decision reads from the cluster: nodes, waiting workloads, shared out to the pools
pool_api.py    the RPCs of node pools; what a pool would do now, and which one grows for a workload

`api/service.py` serves its RPCs, and the loops of `app.py` run the controller. It uses `membership` for
nodes, and `providers` for machines.
"""
