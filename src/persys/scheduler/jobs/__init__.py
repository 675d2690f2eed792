"""Jobs: starts runs by schedule and on request, and their members. `core/jobs` decides.

jobs.py            the jobs as users change them: apply, suspend, run, cancel, delete
controller.py      the loop of the leader: occurrences, attempts and retention, contained per job
attempt_states.py  the attempts of a run as this scheduler knows them
job_api.py         the RPCs of jobs, and their views

`api/service.py` serves its RPCs, and the loops of `app.py` run the controller. It changes members through
`reconcile`. `recovery` changes its records after a loss.
"""
