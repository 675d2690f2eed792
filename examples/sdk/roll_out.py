"""Apply the sets and jobs of a spec file and wait for them: roll_out.py FILE [SECONDS]

Prints one line per set and job. A job is run once. Exits with 1 if a rollout was rolled back or paused, if a
run failed, or if one of them takes too long.
"""

import sys
from datetime import timedelta
from pathlib import Path

from persys.sdk import (
    JobDocument,
    PersysError,
    SetDocument,
    connect,
    read_documents,
    roll_out,
    run_job,
)


def main(path: str, seconds: float = 120) -> int:
    documents = read_documents(Path(path).read_text())
    within = timedelta(seconds=seconds)
    succeeded = []
    with connect() as cluster:
        sets = [one.request for one in documents if isinstance(one, SetDocument)]
        for set_id, result in roll_out(cluster, sets, within=within).items():
            print(f"{set_id}: {result.state} ({result.reason})")
            succeeded.append(result.succeeded)
            for member in cluster.get_set(set_id).members:
                print(f"  {member.workload_id} on {member.node_id}: {member.health}")
        for job in [one for one in documents if isinstance(one, JobDocument)]:
            cluster.apply_job(job.request)
            run = run_job(cluster, job.id, within=within)
            print(f"{run.run_id}: {'succeeded' if run.succeeded else run.reason}")
            succeeded.append(run.succeeded)
    return 0 if all(succeeded) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], *map(float, sys.argv[2:3])))
    except PersysError as err:
        sys.exit(f"error: {err}")
