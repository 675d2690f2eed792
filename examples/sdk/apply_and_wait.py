"""Apply all workloads of a spec file and wait until they run: apply_and_wait.py FILE [SECONDS]

Prints one line per workload. Exits with 1 if a workload is refused, has failed or does not run in time.
"""

import sys
from datetime import timedelta
from pathlib import Path

from persys.sdk import PersysError, apply_and_wait, connect, read_spec_file


def main(path: str, seconds: float = 120) -> int:
    requests = [document.request for document in read_spec_file(Path(path).read_text())]
    with connect() as cluster:
        results = apply_and_wait(cluster, requests, within=timedelta(seconds=seconds))
    for workload_id, result in results.items():
        print(f"{workload_id}: {result.status} {result.reason}".strip())
    return 0 if all(result.runs for result in results.values()) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], *map(float, sys.argv[2:3])))
    except PersysError as err:
        sys.exit(f"error: {err}")
