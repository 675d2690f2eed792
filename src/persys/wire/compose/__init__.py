"""Compose files. The scheduler reads them without Docker, and the agent again before Compose runs.

`docker compose config` is therefore not enough: the scheduler must know ports, limits and privileges before a
node is chosen, with the line of each error. Called by both spec decoders and by the agent's Compose runtime.

`source.py`         the Compose spec of both contracts: an inline file or a Git source
`git_source.py`     Git repository URLs, refs and paths
`compose_file.py`   the requirements of a file: services, ports, limits, mounts, privileges
`interpolation.py`  variables, as Compose substitutes them
`rules.py`          unsupported features, and references to other files
"""
