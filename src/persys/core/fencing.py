"""When a copy that nobody can reach has surely been stopped by its own agent.

The agent counts from the sending of the last heartbeat that was acknowledged, the scheduler from its arrival,
which is later. Clocks may run at slightly different rates and Docker takes its time: hence the margin.
"""

from datetime import timedelta
from math import ceil

from persys.model.spec import ContainerSpec, Spec, VMSpec
from persys.model.workload import Workload

STOP_GRACE_SECONDS = 10
MACHINE_STOP_GRACE_SECONDS = 60  # a whole operating system has to end
STOPS_AT_ONCE = 16
MARGIN = timedelta(seconds=10)
MARGIN_SHARE = 0.05


def stop_grace_seconds(spec: Spec) -> int:
    """What a workload with stop_after gets to end by itself; both sides must reckon with the same."""
    match spec:
        case ContainerSpec():
            return spec.stop_grace_seconds or STOP_GRACE_SECONDS
        case VMSpec():
            return spec.stop_grace_seconds or MACHINE_STOP_GRACE_SECONDS
        case _:
            return STOP_GRACE_SECONDS


def stopped_after(workload: Workload, *, neighbours: int) -> timedelta:
    """Silence of a node after which the workload does not run there any more.

    `neighbours` is how many workloads the node has: it does not stop all of them at once.
    """
    rounds = max(1, ceil(neighbours / STOPS_AT_ONCE))
    span = timedelta(
        seconds=workload.stop_after_seconds + rounds * stop_grace_seconds(workload.spec)
    )
    return span * (1 + MARGIN_SHARE) + MARGIN
