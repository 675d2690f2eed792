"""Run a container to completion and print its log: run_job.py FILE

The file has one container with `restart_policy: "no"`. The job is deleted when it has ended.
Exits with 0 if it completed and with 1 if it failed.
"""

import sys
import time
from pathlib import Path

from persys.sdk import NotFoundError, SchedulerClient, connect, read_spec_file


def wait_until_started(cluster: SchedulerClient, workload_id: str) -> None:
    while cluster.get_workload(workload_id).status == "Pending":
        time.sleep(0.25)


def outcome(cluster: SchedulerClient, workload_id: str) -> tuple[bool, str]:
    """Waits until the job has ended. Returns whether it completed, and its status with the reason."""
    while (view := cluster.get_workload(workload_id)).status in ("Pending", "Running", "Unknown"):
        time.sleep(0.25)
    if view.reason.code == "Completed":
        return True, "Completed"
    return False, f"{view.status}: {view.reason.message}"


def delete(cluster: SchedulerClient, workload_id: str) -> None:
    cluster.delete(workload_id)
    try:
        while True:
            cluster.get_workload(workload_id)
            time.sleep(0.25)
    except NotFoundError:
        return


def main(path: str) -> int:
    (document,) = read_spec_file(Path(path).read_text())
    job = document.request.workload_id
    with connect() as cluster:
        cluster.apply(document.request)
        try:
            wait_until_started(cluster, job)
            for chunk in cluster.stream_logs(job, follow=True):
                output = sys.stderr if chunk.stream == "stderr" else sys.stdout
                print(chunk.data.decode(errors="replace"), end="", file=output, flush=True)
            completed, shown = outcome(cluster, job)
        finally:
            delete(cluster, job)
    print(f"{job}: {shown}")
    return 0 if completed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
