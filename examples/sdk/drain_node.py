"""Move all workloads away from a node and wait until it is empty: drain_node.py NODE [SECONDS]

Prints each change of the progress. Exits with 1 if workloads stay: those with data, and those that fit on no
other node. The node takes workloads again after `persysctl node uncordon NODE`.
"""

import sys
import time
from datetime import timedelta

from persys.sdk import connect


def main(node_id: str, seconds: float = 300) -> int:
    with connect() as cluster:
        node = cluster.drain(node_id, deadline=timedelta(seconds=seconds))
        shown = -1
        while node.drain.state == "draining":
            if node.drain.remaining != shown:
                shown = node.drain.remaining
                print(f"{node_id}: {shown} workloads remain", flush=True)
            blocked = node.drain.blocked
            if shown and len(blocked) == shown and all(block.stays for block in blocked):
                break
            time.sleep(0.5)
            node = cluster.get_node(node_id)
    for block in node.drain.blocked:
        print(f"{block.workload_id} stays: {block.reason}", file=sys.stderr)
    if node.drain.state != "drained":
        return 1
    print(f"{node_id}: drained")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:3])))
