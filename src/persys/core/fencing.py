"""Computes when the agent of an unreachable node has certainly stopped a workload with `stop_after`.

The agent counts from when it sent the last acknowledged heartbeat, the scheduler from when it received it,
which is later. The margin covers clocks that run at different rates and the time that Docker needs.
"""

from datetime import timedelta
from math import ceil

from persys.model.spec import ContainerSpec, Spec, VMSpec
from persys.model.workload import Workload

STOP_GRACE_SECONDS = 10
MACHINE_STOP_GRACE_SECONDS = 60  # an operating system has to shut down
STOPS_AT_ONCE = 16
MARGIN = timedelta(seconds=10)
MARGIN_SHARE = 0.05


def stop_grace_seconds(spec: Spec) -> int:
    """The grace period of a workload with stop_after. Scheduler and agent must use the same value."""
    match spec:
        case ContainerSpec():
            return spec.stop_grace_seconds or STOP_GRACE_SECONDS
        case VMSpec():
            return spec.stop_grace_seconds or MACHINE_STOP_GRACE_SECONDS
        case _:
            return STOP_GRACE_SECONDS


def stopped_after(workload: Workload, *, neighbours: int) -> timedelta:
    """Time since the last heartbeat after which the workload no longer runs on the node.

    `neighbours` is the number of workloads on the node: it does not stop all of them at once.
    """
    rounds = max(1, ceil(neighbours / STOPS_AT_ONCE))
    span = timedelta(
        seconds=workload.stop_after_seconds + rounds * stop_grace_seconds(workload.spec)
    )
    return span * (1 + MARGIN_SHARE) + MARGIN
