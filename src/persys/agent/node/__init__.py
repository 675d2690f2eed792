"""The node itself: what it has and what it uses.

host.py          capacity and usage of the host from the kernel, and its boot id
capabilities.py  the capabilities that the node registers, with its storage pools
usage.py         samples the utilization of the host and the usage of each workload

Read by `uplink/` for registrations and heartbeats, and by `workloads/admission.py`.
"""
