"""Providers: where the machines of node pools come from. One port, one module per provider.

    port.py          the contract: `Provider`, machine requests, instances
    open.py          opens the provider of a pool
    exec.py          programs of the operator
    ec2.py           EC2 and compatible APIs, with boto3
    libcloud.py      Google Compute Engine, DigitalOcean and OpenStack, with Apache Libcloud
    libvirt.py       VM workloads of this cluster
    thread_calls.py  calls of blocking libraries, with deadlines
    user_data.py     what a new machine does at its first boot, as cloud-init user data

scheduler/nodepools decides when machines are created and destroyed, and calls the port.
"""
