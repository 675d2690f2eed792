"""Decides the next step of an agent towards the state of an order, or that the order is settled.

The worker inspects the runtime, calls `next_step`, performs the step and repeats. An exited container may be
finished work, a failure, or a container to restart; only the journal distinguishes them. Before each start it
stores when the container was last started (`launched_from`); a container with a later start has run for this
order.
"""

from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from persys.core.agent.deviations import DRIFTED, REPAIRS_MAX, Repairs, summary
from persys.core.agent.health import UNHEALTHY, Health
from persys.core.agent.progress import (
    Artefact,
    Condition,
    Perform,
    Progress,
    Settled,
    Step,
    counted,
)
from persys.core.backoff import doubled
from persys.model.spec import ComposeSpec, ContainerSpec, HealthCheck, RestartPolicy, Spec, VMSpec
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

COMPLETED = "Completed"
CRASH_LOOP = "CrashLoop"
BOOT_FAILED = "BootFailed"
OOM_KILLED = "OOMKilled"
RESTARTING = "Restarting"
EXITED = "Exited"
STOPPED_ALONE = "StoppedAlone"

LOOP_RESTARTS_MIN = 3
STABLE_AFTER = timedelta(seconds=10)
BOOTED_AFTER = timedelta(seconds=60)  # the same for a VM, which takes longer to boot
TROUBLE_LOOK_AFTER = timedelta(seconds=5)
SWITCHED_OFF = 137  # the exit code after SIGKILL
RESTART_FIRST_AFTER = timedelta(seconds=0.2)
RESTART_LONGEST_AFTER = timedelta(seconds=60)
# An unhealthy workload is reported before it is restarted; the delay between restarts grows.
UNHEALTHY_SHOWN_FOR = timedelta(seconds=1)
HEALTH_RESTART_FIRST_AFTER = timedelta(seconds=10)
HEALTH_RESTART_LONGEST_AFTER = timedelta(minutes=5)


def next_step(
    order: Order,
    artefact: Artefact | None,
    progress: Progress,
    *,
    now: datetime,
    scheduler_lost: bool = False,
) -> Perform | Settled:
    """`scheduler_lost`: for longer than `stop_after`, or another machine is registered as this node."""
    if order.desired is Desired.RUNNING and (scheduler_lost or progress.halted):
        return _step_for_halted(order, artefact, progress, now)
    match order.desired:
        case Desired.RUNNING:
            outcome = _step_for_running(order, artefact, progress, now)
        case Desired.STOPPED:
            outcome = _step_for_stopped(order, artefact)
        case Desired.DELETED:
            outcome = _step_for_deleted(artefact, progress)
        case unreachable:
            assert_never(unreachable)
    if isinstance(outcome, Perform) and progress.failure is not None:
        return _failed(progress.failure)  # only a new order retries
    return outcome


def after_inspection(progress: Progress, order: Order, artefact: Artefact | None) -> Progress:
    """Count restarts. A container that this order has not started yet is not counted.

    A workload that runs once has been started if its container has, also if the journal was lost.
    """
    if artefact is None or artefact.managed or artefact.revision != order.revision:
        return progress
    if order.run_once and progress.run_started_at is None:
        progress = replace(progress, run_started_at=artefact.started_at)
    is_launched = artefact.active or progress.has_launched(artefact)
    if order.desired is not Desired.RUNNING or not is_launched:
        return progress
    seen = artefact.runs or ((artefact.run,) if artefact.run is not None else ())
    return replace(
        progress, restart_counter=counted(progress.restart_counter, seen, order.revision)
    )


def before_start(progress: Progress, artefact: Artefact | None, *, now: datetime) -> Progress:
    """The progress to store before a start, so that a crash after it does not run finished work twice."""
    started_at = artefact.started_at if artefact is not None else None
    again = artefact is not None and progress.has_launched(artefact) and _was_brief(artefact)
    restarts = progress.restarts + 1 if again else 0
    return replace(
        progress,
        launching=True,
        launched_from=started_at,
        restarts=restarts,
        run_started_at=progress.run_started_at or now,
    )


def before_restart(progress: Progress, artefact: Artefact | None) -> Progress:
    """The progress to store before the restart of an unhealthy workload. Interrupted, it is repeated."""
    started_at = artefact.started_at if artefact is not None else None
    return replace(
        progress,
        launching=True,
        launched_from=started_at,
        health_restarts=progress.health_restarts + 1,
    )


def before_repair(progress: Progress, *, now: datetime) -> Progress:
    """The progress to store before the repair of a drifted workload."""
    return replace(progress, repairs=progress.repairs.begun(now))


def before_replace(progress: Progress, artefact: Artefact | None, *, now: datetime) -> Progress:
    """The same before the container is replaced. Interrupted, it is repeated."""
    started_at = artefact.started_at if artefact is not None else None
    return replace(before_repair(progress, now=now), launching=True, launched_from=started_at)


def of_repeated_order(known: Progress) -> Progress:
    """The progress with which a repeated order starts, after the same order has failed.

    A workload that has run to completion does not run again: only its inspection has failed.
    """
    if known.final_result is None or known.final_result.code != COMPLETED:
        return Progress(restart_counter=known.restart_counter)
    return Progress(
        launching=known.launching,
        launched_from=known.launched_from,
        final_result=known.final_result,
        restart_counter=known.restart_counter,
    )


def of_repeated_run(known: Progress) -> Progress:
    """The same for an order whose workload is started at most once: what has happened stays."""
    return Progress(
        launching=known.launching,
        launched_from=known.launched_from,
        final_result=known.final_result,
        restart_counter=known.restart_counter,
        run_started_at=known.run_started_at,
        expired=known.expired,
    )


def after_step(
    progress: Progress, step: Step, failure: Failure | None, *, now: datetime
) -> Progress:
    if step in (Step.REPAIR, Step.REPLACE):
        progress = replace(progress, repairs=progress.repairs.ended(now, failure))
    elif failure is not None:
        return replace(progress, failure=failure)
    return replace(progress, done=progress.done | {step})


def after_settling(progress: Progress, settled: Settled) -> Progress:
    """Reset the steps: when the container has to be recreated, its image may be gone.

    A running or restarting container counts as launched, even if an earlier order started it.
    """
    return replace(
        progress,
        done=frozenset(),
        launching=progress.launching or settled.actual in (Actual.RUNNING, Actual.PENDING),
        failure=progress.failure if settled.failure == progress.failure else None,
        final_result=settled if settled.final else None,
        looping=settled.code in (CRASH_LOOP, BOOT_FAILED),
        halted=settled.code == STOPPED_ALONE,
        health_restarts=0 if settled.healthy else progress.health_restarts,
        unhealthy_shown=settled.code == UNHEALTHY,
        repairs=replace(progress.repairs, shown=True) if settled.drifted else Repairs(),
    )


def _step_for_deleted(artefact: Artefact | None, progress: Progress) -> Perform | Settled:
    if artefact is not None:
        stops = artefact.active and not artefact.managed  # another cluster stops what it removes
        return Perform(Step.STOP if stops else Step.REMOVE)
    if Step.REMOVE_VOLUMES not in progress.done:
        return Perform(Step.REMOVE_VOLUMES)
    return Settled(Actual.ABSENT)


def _step_for_stopped(order: Order, artefact: Artefact | None) -> Perform | Settled:
    if artefact is None:
        return Settled(Actual.STOPPED)
    if artefact.active:
        return Perform(Step.STOP)
    if artefact.revision != order.revision and artefact.managed:
        return Perform(Step.CREATE)
    if artefact.revision != order.revision or _is_dead(artefact):
        return Perform(Step.REMOVE)
    return Settled(Actual.STOPPED)


def _step_for_halted(
    order: Order, artefact: Artefact | None, progress: Progress, now: datetime
) -> Perform | Settled:
    """It must not run, whatever its state before. A workload that had already ended keeps its result."""
    if artefact is not None and artefact.active:
        return Perform(Step.STOP, halts=True)
    if not progress.halted:
        outcome = _step_for_running(order, artefact, progress, now)
        if isinstance(outcome, Settled) and outcome.look_again_at is None:
            return outcome
    message = "another machine is registered as this node"
    if order.stop_after_seconds:
        message = f"no scheduler for {order.stop_after_seconds}s"
    return Settled(Actual.STOPPED, code=STOPPED_ALONE, message=message)


def _step_for_running(
    order: Order, artefact: Artefact | None, progress: Progress, now: datetime
) -> Perform | Settled:
    if artefact is None:
        return progress.final_result or _creation_step(progress)
    if _is_dead(artefact):
        return Perform(Step.REMOVE)
    if artefact.revision != order.revision:
        return _replacement_step(order, artefact, progress)
    if artefact.managed:
        return _step_for_managed(artefact, progress, now)
    match artefact.condition:
        case Condition.RUNNING:
            return _with_next_look(_check_running(order, artefact, progress, now), artefact, now)
        case Condition.RESTARTING:
            return _restarting_result(artefact, progress)
        case Condition.PAUSED if artefact.trouble is not None:
            return replace(_failed(artefact.trouble), look_again_at=now + TROUBLE_LOOK_AFTER)
        case Condition.EXITED if progress.has_launched(artefact):
            return _after_exit(order, artefact, progress, now)
        case _:
            return Perform(Step.START)


def _is_dead(artefact: Artefact) -> bool:
    return artefact.condition in (Condition.DEAD, Condition.REMOVING)


def _step_for_managed(artefact: Artefact, progress: Progress, now: datetime) -> Perform | Settled:
    """A workload in another cluster. An order for a workload that has failed there is a retry."""
    reported = artefact.reported
    is_new_order = not progress.launching and Step.CREATE not in progress.done
    if reported is None or (reported.failure is not None and is_new_order):
        return Perform(Step.START)
    if artefact.look_again_after is None:
        return reported
    return replace(reported, look_again_at=now + artefact.look_again_after)


def _creation_step(progress: Progress) -> Perform:
    for step in (Step.PULL, Step.PREPARE_VOLUMES):
        if step not in progress.done:
            return Perform(step)
    return Perform(Step.CREATE)


def _replacement_step(order: Order, artefact: Artefact, progress: Progress) -> Perform:
    if Step.PULL not in progress.done:
        return Perform(Step.PULL)  # before the stop: a failed pull leaves the old container running
    if artefact.managed or isinstance(order.spec, ComposeSpec):
        return Perform(Step.CREATE)  # in place: unchanged services keep running
    return Perform(Step.STOP if artefact.active else Step.REMOVE)


def _check_running(
    order: Order, artefact: Artefact, progress: Progress, now: datetime
) -> Perform | Settled:
    if any(one.repairable for one in artefact.deviations):
        return _check_drifted(order, artefact, progress, now)
    outcome = _check_health(order, artefact, progress, now)
    if not artefact.deviations or isinstance(outcome, Perform) or outcome.code:
        return outcome
    # Only reported: the repair would have to replace the container.
    return replace(outcome, code=DRIFTED, message=summary(artefact.deviations))


def _with_next_look(
    outcome: Perform | Settled, artefact: Artefact, now: datetime
) -> Perform | Settled:
    """An artefact that is not complete yet, such as a VM without an address, is inspected again."""
    if isinstance(outcome, Perform) or artefact.look_again_after is None:
        return outcome
    look_at = now + artefact.look_again_after
    return replace(outcome, look_again_at=min(outcome.look_again_at or look_at, look_at))


def _check_drifted(
    order: Order, artefact: Artefact, progress: Progress, now: datetime
) -> Perform | Settled:
    """It runs, but differs from its configuration. A repair without success is repeated with back-off."""
    cut_off = any(one.cuts_off for one in artefact.deviations)
    repairs = progress.repairs
    if now >= repairs.next_at(now):
        # Compose recreates containers with their data; Docker only attaches them again.
        in_place = not cut_off or (not repairs.count and isinstance(order.spec, ContainerSpec))
        return Perform(Step.REPAIR if in_place else Step.REPLACE)
    message = summary(artefact.deviations)
    if repairs.problem:
        message = f"{message}; repair failed: {repairs.problem}"
    settled = Settled(Actual.RUNNING, code=DRIFTED, message=message)
    if cut_off and repairs.count >= REPAIRS_MAX:
        text = f"{message}; repaired {repairs.count} times without success"
        settled = _failed(Failure(FailureReason.NETWORK_ERROR, text, code=DRIFTED))
    return replace(settled, drifted=True, look_again_at=repairs.next_at(now))


def _check_health(
    order: Order, artefact: Artefact, progress: Progress, now: datetime
) -> Perform | Settled:
    match artefact.health:
        case Health.UNHEALTHY:
            return _check_unhealthy(order, artefact, progress, now)
        case Health.STARTING if progress.health_restarts >= LOOP_RESTARTS_MIN:
            return _unhealthy_loop(artefact, progress)
        case Health.HEALTHY:
            return replace(_running_result(artefact, progress, now), healthy=True)
        case _:
            return _running_result(artefact, progress, now)


def _running_result(artefact: Artefact, progress: Progress, now: datetime) -> Settled:
    running = Settled(Actual.RUNNING)
    if not progress.looping or artefact.started_at is None:
        return running
    stable_at = artefact.started_at + _stable_after(artefact)
    if now >= stable_at:
        return running
    return replace(_crash_loop(artefact, progress), look_again_at=stable_at)


def _check_unhealthy(
    order: Order, artefact: Artefact, progress: Progress, now: datetime
) -> Perform | Settled:
    """It runs, but its health check fails. It is restarted only if its check and its policy allow it."""
    message = f"unhealthy: {artefact.health_error}" if artefact.health_error else "unhealthy"
    settled = Settled(Actual.RUNNING, code=UNHEALTHY, message=message)
    if progress.health_restarts >= LOOP_RESTARTS_MIN:
        settled = _unhealthy_loop(artefact, progress)
    policy = _restart_policy(order.spec)
    given_up = 0 < policy.retries_max <= progress.health_restarts
    if not _health_check(order.spec).restart_unhealthy or policy.name == "no" or given_up:
        return settled
    restart_at = (artefact.started_at or now) + _restart_delay(progress.health_restarts)
    if settled.actual is Actual.RUNNING and not progress.unhealthy_shown:
        restart_at = max(restart_at, now + UNHEALTHY_SHOWN_FOR)
    if now < restart_at:
        return replace(settled, look_again_at=restart_at)
    return Perform(Step.RESTART, by_policy=True)


def _restart_delay(health_restarts: int) -> timedelta:
    longest = HEALTH_RESTART_LONGEST_AFTER
    return (
        doubled(HEALTH_RESTART_FIRST_AFTER, health_restarts - 1, longest=longest)
        if health_restarts
        else timedelta()
    )


def _unhealthy_loop(artefact: Artefact, progress: Progress) -> Settled:
    message = f"crash loop: unhealthy, restarted {progress.health_restarts} times"
    if artefact.health_error:
        message = f"{message}; {artefact.health_error}"
    return _failed(Failure(FailureReason.RUNTIME_ERROR, message, retryable=False, code=CRASH_LOOP))


def _restarting_result(artefact: Artefact, progress: Progress) -> Settled:
    if _restarts(artefact, progress) >= LOOP_RESTARTS_MIN and _was_brief(artefact):
        return _crash_loop(artefact, progress)
    if _did_not_boot(artefact):
        return _failed(_exit_failure(artefact, f"{_exit_text(artefact)}; restarting"))
    return Settled(Actual.PENDING, code=RESTARTING, message=f"{_exit_text(artefact)}; restarting")


def _was_brief(artefact: Artefact) -> bool:
    if artefact.started_at is None or artefact.finished_at is None:
        return True  # it never ran
    return artefact.finished_at - artefact.started_at < _stable_after(artefact)


def _stable_after(artefact: Artefact) -> timedelta:
    return BOOTED_AFTER if artefact.boots else STABLE_AFTER


def _did_not_boot(artefact: Artefact) -> bool:
    crashed = artefact.exit_code not in (0, SWITCHED_OFF)
    return artefact.boots and crashed and _was_brief(artefact)


def _after_exit(
    order: Order, artefact: Artefact, progress: Progress, now: datetime
) -> Perform | Settled:
    policy = artefact.restart or _restart_policy(order.spec)
    if not policy.runs_to_completion:
        return _restart_after_exit(order, artefact, progress, now)
    result = result_of_exit(artefact)
    tries_again = policy.name == "on-failure" and not _is_exhausted(artefact, progress, policy)
    if result.failure is not None and tries_again:
        return _restart_after_exit(order, artefact, progress, now)
    return result


def result_of_exit(artefact: Artefact) -> Settled:
    """The result of a workload that has exited and is not started again."""
    if artefact.exit_code == 0 and not artefact.oom_killed:
        return Settled(Actual.STOPPED, code=COMPLETED, message=_exit_text(artefact), final=True)
    return _failed_exit(artefact)


def _restart_after_exit(
    order: Order, artefact: Artefact, progress: Progress, now: datetime
) -> Perform | Settled:
    """Restart a workload that has exited.

    Docker restarts containers automatically. A workload with `stop_after` is restarted only here: a runtime
    that returns late would start it before the agent could stop it. libvirt restarts nothing.
    """
    only_here = bool(order.stop_after_seconds or artefact.boots)
    if not only_here or artefact.finished_at is None:
        return Perform(Step.START, by_policy=only_here)
    pause = doubled(RESTART_FIRST_AFTER, progress.restarts, longest=RESTART_LONGEST_AFTER)
    start_at = artefact.finished_at + pause
    if now >= start_at:
        return Perform(Step.START, by_policy=True)
    return replace(_restarting_result(artefact, progress), look_again_at=start_at)


def _is_exhausted(artefact: Artefact, progress: Progress, policy: RestartPolicy) -> bool:
    return 0 < policy.retries_max <= _restarts(artefact, progress)


def _restarts(artefact: Artefact, progress: Progress) -> int:
    return max(artefact.restart_count, progress.restarts)


def _failed_exit(artefact: Artefact) -> Settled:
    return replace(_failed(_exit_failure(artefact, _exit_text(artefact))), final=True)


def _exit_failure(artefact: Artefact, message: str) -> Failure:
    if _did_not_boot(artefact):
        reason, code = FailureReason.VM_BOOT_FAILED, BOOT_FAILED
    else:
        reason = FailureReason.RUNTIME_ERROR
        code = OOM_KILLED if artefact.oom_killed else EXITED
    return Failure(reason, message, retryable=False, code=code)


def _crash_loop(artefact: Artefact, progress: Progress) -> Settled:
    subject = f"{artefact.part} restarted" if artefact.part else "restarted"
    message = f"crash loop: {subject} {_restarts(artefact, progress)} times"
    if artefact.condition is not Condition.RUNNING:
        message = f"{message}; {_exit_text(artefact)}"
    reason = FailureReason.VM_BOOT_FAILED if artefact.boots else FailureReason.RUNTIME_ERROR
    return _failed(Failure(reason, message, retryable=False, code=CRASH_LOOP))


def _failed(failure: Failure) -> Settled:
    return Settled(Actual.FAILED, code=failure.code, message=failure.message, failure=failure)


def _exit_text(artefact: Artefact) -> str:
    if artefact.boots:
        return _vm_exit_text(artefact)
    subject = f"{artefact.part}: " if artefact.part else ""
    if artefact.oom_killed:
        return f"{subject}out of memory: killed with exit code {artefact.exit_code}"
    return f"{subject}exited with code {artefact.exit_code}"


def _vm_exit_text(artefact: Artefact) -> str:
    if artefact.started_at is None or artefact.finished_at is None:
        return artefact.error
    seconds = (artefact.finished_at - artefact.started_at).total_seconds()
    return f"{artefact.error} {seconds:.0f} s after it started"


def _restart_policy(spec: Spec) -> RestartPolicy:
    return spec.restart if isinstance(spec, ContainerSpec | VMSpec) else RestartPolicy()


def _health_check(spec: Spec) -> HealthCheck:
    return spec.health if isinstance(spec, ContainerSpec | VMSpec) else HealthCheck()


NOT_RECONCILED = "NotReconciled"


def without_reconciliation(
    outcome: Perform | Settled, order: Order, artefact: Artefact | None, *, under_way: bool
) -> Perform | Settled:
    """Allow only orders and the policies of their specs on a node whose reconciliation is off.

    `under_way`: an order is being executed. Otherwise the state is only reported. A difference is a failure
    that a new order repairs, so that no scheduler sends the same order repeatedly.
    """
    if isinstance(outcome, Settled) or under_way or outcome.halts or outcome.by_policy:
        return outcome
    if order.desired is Desired.DELETED:
        return outcome
    if artefact is not None and artefact.condition is Condition.RUNNING:
        if order.desired is Desired.RUNNING and artefact.revision == order.revision:
            message = summary(artefact.deviations)
            return Settled(Actual.RUNNING, code=DRIFTED if message else "", message=message)
        found = "is running"
    else:
        found = "is missing" if artefact is None else f"is {artefact.condition}"
    text = (
        f"desired state is {order.desired}, but it {found}, and reconciliation is off on this node "
        "(PERSYS_RECONCILE_ENABLED); retry or apply the workload to repair it"
    )
    failure = Failure(FailureReason.RUNTIME_ERROR, text, retryable=False, code=NOT_RECONCILED)
    return Settled(Actual.FAILED, code=NOT_RECONCILED, message=text, failure=failure)
