"""The deterministic simulation: the real scheduler and agents in virtual time, with injected faults.

    run.py               one run of a plan, its outcome, and the shrinking of failing plans
    world.py             the simulated cluster: starts processes and undoes faults
    federated_world.py   two clusters, of which one is a federated node of the other
    pool_world.py        a cluster with a node pool
    set_world.py         a cluster with sets and jobs
    scenario/            plans: user requests and faults, generated from a seed
    engine/              virtual time, simulated processes, clocks, trace
    network/             calls and streams between processes, with faults
    fakes/               the environment of agents and schedulers: Docker, disks, store, provider
    actors/              users, the operator, hostile nodes
    checks/              the promises, checked at every step
    nodepools/           node pools: a simulated provider, and a year of load
    whatif.py            what-if analysis on a snapshot of a real cluster

Called by `persys sim` (`cli/local`) and by tests/simulation. docs/explanation/simulation.md describes it.
"""
