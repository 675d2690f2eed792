"""Limits at which a workload is stopped, or not started again. Each changes the outcome of `next_step`.

Disk space: if the storage driver of Docker cannot limit a container, its written data is measured. A
container over its limit is stopped and failed. A restart would not free the data, so only a new order starts
it again.

One run: an order with `run_once` starts its workload at most once, also after a crash of the agent, a restart
of Docker and a reboot. The journal has the start before it happens (`run_started_at`). From then on nothing
starts the workload again. When it has ended, its result is kept: its exit code, or `Interrupted` if that is
not known.

Time: the workload is stopped and has failed `run_deadline_seconds` after its first start.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.core.agent.health import UNHEALTHY, Health
from persys.core.agent.next_step import STOPPED_ALONE, result_of_exit
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.node import GIB
from persys.model.spec import ComposeSpec, ContainerSpec
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

DISK_LIMIT_EXCEEDED = "DiskLimitExceeded"
DEADLINE_EXCEEDED = "DeadlineExceeded"
INTERRUPTED = "Interrupted"
UNKNOWN_EXIT_CODE = 255  # of a VM that stopped while the agent was not running


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


def within_run_limits(
    outcome: Perform | Settled,
    order: Order,
    artefact: Artefact | None,
    progress: Progress,
    *,
    now: datetime,
) -> Perform | Settled:
    """The outcome, unless the workload has started and `run_once` or its deadline forbids it."""
    started_at = progress.run_started_at
    is_limited = order.run_once or order.run_deadline_seconds
    if not is_limited or order.desired is not Desired.RUNNING or started_at is None:
        return outcome
    if artefact is not None and artefact.active and artefact.revision == order.revision:
        if order.run_once:
            outcome = _without_another_start(outcome, artefact, progress)
        return _before_deadline(outcome, order, progress, started_at, now)
    if order.run_once:
        return _result(outcome, order, artefact, progress)
    return _expired(order) if progress.expired else outcome


def _without_another_start(
    outcome: Perform | Settled, artefact: Artefact, progress: Progress
) -> Perform | Settled:
    """While it runs. A stack runs until all its services have exited."""
    if progress.final_result is not None:
        return Perform(Step.STOP, by_policy=True)  # it was started manually
    if isinstance(outcome, Settled):
        return outcome if artefact.condition.active or outcome.failure else _running(artefact)
    is_paused = artefact.condition is Condition.PAUSED and not artefact.parts
    if outcome.step in (Step.STOP, Step.REPAIR) or (outcome.step is Step.START and is_paused):
        return outcome
    return _running(artefact)


def _running(artefact: Artefact) -> Settled:
    if artefact.health is not Health.UNHEALTHY:
        return Settled(Actual.RUNNING)
    message = f"unhealthy: {artefact.health_error}" if artefact.health_error else "unhealthy"
    return Settled(Actual.RUNNING, code=UNHEALTHY, message=message)


def _before_deadline(
    outcome: Perform | Settled,
    order: Order,
    progress: Progress,
    started_at: datetime,
    now: datetime,
) -> Perform | Settled:
    if not order.run_deadline_seconds:
        return outcome
    ends_at = started_at + timedelta(seconds=order.run_deadline_seconds)
    if progress.expired or now >= ends_at:
        return Perform(Step.STOP, by_policy=True, expires=True)
    if isinstance(outcome, Perform):
        return outcome
    return replace(outcome, look_again_at=min(outcome.look_again_at or ends_at, ends_at))


def _result(
    outcome: Perform | Settled, order: Order, artefact: Artefact | None, progress: Progress
) -> Settled:
    """The result of the only run, which has ended."""
    if progress.final_result is not None:
        return progress.final_result
    if progress.expired:
        return _expired(order)
    if progress.failure is not None:
        return _ended(replace(progress.failure, retryable=False))
    if isinstance(outcome, Settled) and outcome.code == STOPPED_ALONE:
        return _interrupted(f"stopped: {outcome.message}")
    if artefact is None or artefact.revision != order.revision:
        return _interrupted("it was removed before its result was known")
    if artefact.condition is not Condition.EXITED or not _has_run(artefact, progress):
        return _interrupted(f"its result is not known: it was started, and is {artefact.condition}")
    if artefact.boots and artefact.exit_code == UNKNOWN_EXIT_CODE:
        return _interrupted(artefact.error)
    return result_of_exit(artefact)


def _has_run(artefact: Artefact, progress: Progress) -> bool:
    if artefact.started_at is None:
        return False
    return not progress.launching or progress.has_launched(artefact)


def _expired(order: Order) -> Settled:
    text = f"stopped after its deadline of {order.run_deadline_seconds} s"
    return _ended(_failure(text, DEADLINE_EXCEEDED))


def _interrupted(why: str) -> Settled:
    return _ended(_failure(f"interrupted: {why}", INTERRUPTED))


def _failure(text: str, code: str) -> Failure:
    return Failure(FailureReason.RUNTIME_ERROR, text, retryable=False, code=code)


def _ended(failure: Failure) -> Settled:
    return Settled(
        Actual.FAILED, code=failure.code, message=failure.message, failure=failure, final=True
    )
