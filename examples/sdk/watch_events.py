"""Print the events of the cluster as they happen, until Ctrl-C: watch_events.py [WORKLOAD]

The watch continues after the last event that was received, so a lost connection skips nothing.
"""

import sys
import time

from persys.sdk import OutOfRangeError, UnavailableError, connect


def watch(workload_id: str = "") -> None:
    with connect() as cluster:
        last = max((event.sequence for event in cluster.list_events(limit=1).events), default=0)
        while True:
            try:
                for event in cluster.watch_events(after=last, workload_id=workload_id):
                    last = event.sequence
                    if event.kind:  # others are bookmarks: they only advance the sequence
                        subject = event.workload_id or event.node_id
                        print(f"{event.kind} {subject}: {event.message}", flush=True)
            except UnavailableError as err:
                print(f"no connection, trying again: {err}", file=sys.stderr)
                time.sleep(1)
            except OutOfRangeError:
                last = cluster.list_events(limit=1).events[-1].sequence
                print("some events are no longer stored", file=sys.stderr)


if __name__ == "__main__":
    try:
        watch(*sys.argv[1:2])
    except KeyboardInterrupt:
        sys.exit(0)
