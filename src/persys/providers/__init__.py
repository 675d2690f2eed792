"""Providers: where the machines of node pools come from. One port, one module per provider.

    port.py    the contract: `Provider`, machine requests, instances, tags
    exec.py    programs of the operator

scheduler/nodepools decides when machines are created and destroyed, and calls the port.
"""
