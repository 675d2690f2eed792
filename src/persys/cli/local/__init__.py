"""`persys`: all of Persys on one machine, and the simulation.

In reading order:

- `up.py`: `persys up`, `down`, `status` and `clean-demo`
- `processes.py`: the CA, the scheduler, the agent and the gateway as background processes, and certificates
- `daemon.py`: one background process with a pid file and a log; `supervise.py`: restarts it
- `docker.py`, `packages.py`: finds, starts or installs Docker and Compose
- `demo.py`: the demo workload and its image
- `poll.py`: polling with a deadline
- `simulate.py`: `persys sim`; `whatif.py`: `persys sim --snapshot`

Called by `persys.py` only.
"""
