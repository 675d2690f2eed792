"""VMs that ended, hang or do not boot."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from persys.core.agent.next_step import (
    BOOT_FAILED,
    COMPLETED,
    CRASH_LOOP,
    EXITED,
    after_settling,
    before_start,
    next_step,
)
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.core.agent.report import describe
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import RestartPolicy, VMSpec, WorkloadType
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
REVISION = Revision("r1")
LAUNCHED = Progress(launching=True)
RUNNING = Artefact(
    "uuid", "web", Condition.RUNNING, REVISION, started_at=NOON, boots=True, facts={"vm.vnc": "x"}
)
CRASHED = replace(
    RUNNING,
    condition=Condition.EXITED,
    exit_code=1,
    finished_at=NOON + timedelta(seconds=9),
    error="the guest crashed",
)
SHUT_DOWN = replace(CRASHED, exit_code=0, error="the guest shut down")


def an_order(policy: str = "unless-stopped", retries_max: int = 0) -> Order:
    spec = VMSpec(1, 512, restart=RestartPolicy(policy, retries_max))
    return Order(WorkloadId("web"), WorkloadType.VM, REVISION, 1, Desired.RUNNING, spec)


def after(
    artefact: Artefact, order: Order, progress: Progress = LAUNCHED, *, seconds: float = 0
) -> Perform | Settled:
    return next_step(
        order,
        artefact,
        progress,
        now=(artefact.finished_at or NOON) + timedelta(seconds=seconds),
    )


def settled_after(outcome: Perform | Settled) -> Settled:
    assert isinstance(outcome, Settled)
    return outcome


@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure"])
def test_a_vm_that_crashed_at_boot_is_reported_and_restarted(policy: str) -> None:
    settled = settled_after(after(CRASHED, an_order(policy)))

    assert settled.actual is Actual.FAILED
    assert settled.failure == Failure(
        FailureReason.VM_BOOT_FAILED,
        "the guest crashed 9 s after it started; restarting",
        retryable=False,
        code=BOOT_FAILED,
    )
    assert settled.look_again_at is not None
    assert not settled.final
    assert after(CRASHED, an_order(policy), seconds=1) == Perform(Step.START, by_policy=True)


def test_it_waits_longer_before_each_new_start() -> None:
    waits = []
    progress = LAUNCHED
    for _ in range(4):
        settled = settled_after(after(CRASHED, an_order(), progress))
        assert settled.look_again_at is not None
        assert CRASHED.finished_at is not None
        waits.append((settled.look_again_at - CRASHED.finished_at).total_seconds())
        progress = replace(before_start(progress, CRASHED, now=NOON), launched_from=None)

    assert waits == [0.2, 0.4, 0.8, 1.6]


def test_a_vm_that_never_boots_is_in_a_crash_loop() -> None:
    settled = settled_after(after(CRASHED, an_order(), replace(LAUNCHED, restarts=3)))

    assert settled.code == CRASH_LOOP
    assert settled.failure is not None
    assert settled.failure.reason is FailureReason.VM_BOOT_FAILED


def test_a_vm_that_failed_to_boot_counts_as_running_only_after_a_while() -> None:
    looping = after_settling(LAUNCHED, settled_after(after(CRASHED, an_order())))

    assert settled_after(after(RUNNING, an_order(), looping, seconds=5)).actual is Actual.FAILED
    assert settled_after(after(RUNNING, an_order(), looping, seconds=61)).actual is Actual.RUNNING


def test_a_crash_long_after_the_start_is_not_a_failed_boot() -> None:
    late = replace(CRASHED, finished_at=NOON + timedelta(hours=1))

    settled = settled_after(after(late, an_order("no")))

    assert settled.code == EXITED
    assert settled.failure is not None
    assert settled.failure.reason is FailureReason.RUNTIME_ERROR
    assert settled_after(after(late, an_order())).actual is Actual.PENDING


def test_a_manually_powered_off_vm_has_not_failed_to_boot() -> None:
    killed = replace(CRASHED, exit_code=137, error="the VM was powered off")

    assert settled_after(after(killed, an_order())).actual is Actual.PENDING
    assert settled_after(after(killed, an_order("no"))).code == EXITED


@pytest.mark.parametrize("policy", ["no", "on-failure"])
def test_a_vm_that_shut_down_is_completed(policy: str) -> None:
    settled = settled_after(after(SHUT_DOWN, an_order(policy)))

    assert (settled.actual, settled.code, settled.final) == (Actual.STOPPED, COMPLETED, True)


@pytest.mark.parametrize("policy", ["always", "unless-stopped"])
def test_a_vm_with_a_restart_policy_is_started_after_a_shutdown(policy: str) -> None:
    assert after(SHUT_DOWN, an_order(policy), seconds=1) == Perform(Step.START, by_policy=True)


def test_a_vm_that_must_not_restart_stays_failed() -> None:
    settled = settled_after(after(CRASHED, an_order("no"), seconds=9999))

    assert (settled.code, settled.final) == (BOOT_FAILED, True)


def test_a_vm_on_a_full_disk_is_failed_until_there_is_space() -> None:
    full = Failure(FailureReason.STORAGE_ERROR, "disk vda: no space left")
    stuck = replace(RUNNING, condition=Condition.PAUSED, trouble=full)

    settled = settled_after(after(stuck, an_order()))

    assert (settled.actual, settled.failure) == (Actual.FAILED, full)
    assert settled.look_again_at is not None
    assert after(replace(stuck, trouble=None), an_order()) == Perform(Step.START)


def test_a_vm_is_inspected_again_when_more_will_be_known() -> None:
    recent = replace(RUNNING, look_again_after=timedelta(seconds=1))

    settled = settled_after(after(recent, an_order()))

    assert settled == Settled(Actual.RUNNING, look_again_at=NOON + timedelta(seconds=1))


def test_a_vm_is_described_with_its_domain_state() -> None:
    assert describe(replace(CRASHED, facts={"vm.domain_state": "shutoff"}), log_tail="panic") == {
        "container.exit_code": "1",
        "container.started_at": NOON.isoformat(),
        "container.finished_at": (NOON + timedelta(seconds=9)).isoformat(),
        "container.restart_count": "0",
        "container.stderr": "panic",
        "vm.domain_state": "shutoff",
    }
