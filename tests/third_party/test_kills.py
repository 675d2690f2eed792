"""kill -9 of our scheduler or a third-party agent at each step of a workload's lifecycle."""

from collections.abc import Callable

import pytest

from e2e.waiting import eventually
from third_party.pairings import OurScheduler
from third_party.steps import SIDES, STEPS, Apply, after_a_kill

# Long enough that a kill interrupts it.
TASK_SECONDS = 1.0


@pytest.fixture
def slow(plain_pairing: OurScheduler) -> OurScheduler:
    plain_pairing.agent.set_behaviour(work_seconds=TASK_SECONDS, stop_seconds=TASK_SECONDS)
    return plain_pairing


@pytest.mark.full
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_interrupted_by_kill_9_completes(
    pairing: OurScheduler, name: str, side: str, unique_id: str
) -> None:
    pairing.agent.set_behaviour(work_seconds=TASK_SECONDS, stop_seconds=TASK_SECONDS)
    after_a_kill(pairing, name, unique_id, side)


@pytest.mark.parametrize(("name", "side"), [("apply", "agent"), ("delete", "scheduler")])
def test_kill_9_during_an_apply_or_a_delete_loses_nothing(
    slow: OurScheduler, name: str, side: str, unique_id: str
) -> None:
    after_a_kill(slow, name, unique_id, side)


@pytest.mark.parametrize("side", SIDES)
def test_kill_9_does_not_restart_running_workloads(
    slow: OurScheduler, side: str, unique_id: str
) -> None:
    step = Apply(slow, unique_id)
    step.request()
    step.verify()
    before = slow.orders(step.names.values())

    slow.side(side).kill()
    slow.side(side).start()
    slow.user.until_node(slow.agent.node_id, "Ready")
    listed = len(slow.agent.events("listed", ""))
    eventually(lambda: len(slow.agent.events("listed", "")) > listed + 1, "two surveys")

    step.verify()
    assert slow.orders(step.names.values()) == before


@pytest.mark.full
@pytest.mark.parametrize("side", SIDES)
def test_a_lost_node_returns_after_kill_9(
    new_pairing: Callable[..., OurScheduler], side: str, unique_id: str
) -> None:
    pairing = new_pairing(settings={"SCHEDULER_NODE_LEASE": "6s"})
    step = Apply(pairing, unique_id)
    step.request()
    step.verify()
    pairing.agent.kill()
    pairing.user.until_node(pairing.agent.node_id, "NotReady")
    if side == "agent":
        pairing.agent.start()
        pairing.user.until_node(pairing.agent.node_id, "Ready")
        pairing.agent.kill()
    else:
        pairing.scheduler.kill()
        pairing.scheduler.start()
    pairing.agent.start()

    step.verify()
