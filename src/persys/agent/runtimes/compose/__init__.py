"""Compose stacks: from an order to a checked document, and from the document to containers.

`runtimes.detect` builds the runtime; the steps of an order in `agent.workloads` call it. It uses
`runtimes.docker` for everything that Compose does not do.

    runtime        the Compose runtime
    source         writes or fetches the files of a stack, resolves and checks them
    git            fetches repositories
    checkouts      exports a commit and copies its files for containers
    document       functions on the resolved document
    cli            detects and runs the Compose command
    project        resources and project name of a stack in Docker, and its labels
    deviations     compares running containers with their first shape
    cgroups        the cgroup of a stack, which limits it as a whole
    state_dir      the files of each stack on disk
"""
