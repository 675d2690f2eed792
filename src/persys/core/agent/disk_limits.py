"""Stops a workload whose containers have written more than its `disk_gb` allows.

If the storage driver of Docker cannot limit a container, its written data is measured. A container over its
limit is stopped and failed. A restart would not free the data, so only a new order starts it again.
"""

from persys.core.agent.next_step import Artefact, Perform, Progress, Settled, Step
from persys.model.node import GIB
from persys.model.spec import ComposeSpec, ContainerSpec
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

DISK_LIMIT_EXCEEDED = "DiskLimitExceeded"


def limit_gb(order: Order) -> int:
    """How much its containers may write outside of volumes; 0: no limit."""
    match order.spec:
        case ContainerSpec() as spec:
            return spec.disk_gb
        case ComposeSpec() as spec:
            return spec.reserved.disk_gb
        case _:
            return 0


def exceeded(order: Order, written_bytes: int) -> Failure | None:
    limit = limit_gb(order)
    if not limit or written_bytes <= limit * GIB:
        return None
    text = (
        f"{written_bytes / GIB:.2f} GiB written outside of volumes, more than disk_gb {limit}; "
        "write to a volume, or apply the workload with a larger disk_gb"
    )
    return Failure(FailureReason.STORAGE_ERROR, text, retryable=False, code=DISK_LIMIT_EXCEEDED)


def within_disk_limit(
    outcome: Perform | Settled, order: Order, artefact: Artefact | None, progress: Progress
) -> Perform | Settled:
    """The outcome, unless the workload has to be stopped, or was stopped, for its disk limit."""
    if order.desired is not Desired.RUNNING:
        return outcome
    is_active = artefact is not None and artefact.active
    failure = progress.failure
    if failure is not None and failure.code == DISK_LIMIT_EXCEEDED and not is_active:
        return Settled(Actual.FAILED, code=failure.code, message=failure.message, failure=failure)
    if artefact is not None and is_active and artefact.overrun is not None:
        return outcome if isinstance(outcome, Perform) else Perform(Step.STOP, by_policy=True)
    return outcome
