"""The store: durable records with compare-and-set. One port, three adapters, one contract suite.

    port.py             the contract: `Store`, units, outcomes and watch events
    keys.py             the key of each record
    limits.py           limits of a commit, equal for all adapters
    conflicts.py        checks the guards of a commit, for memory and SQLite
    leases.py           expiry of leases, for memory and SQLite
    watch_history.py    recent changes for watchers, for memory and SQLite
    memory.py           the store of tests and simulations
    sqlite.py           the embedded store
    etcd.py             the store of several schedulers
    etcd_connection.py  calls to the members of etcd
    open.py             opens the store of PERSYS_STORE

scheduler/commit writes to it, scheduler/state reads and follows it, scheduler/ha elects its leader with it.
"""
