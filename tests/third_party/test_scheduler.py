"""Our agent with a third-party scheduler: every lifecycle step on real runtimes, and kill -9."""

import pytest

from e2e.containers import container_ids, docker
from e2e.waiting import eventually
from third_party.pairings import OurAgent
from third_party.steps import SIDES, STEPS, after_a_kill
from third_party.user import KINDS


def test_workloads_of_all_types_are_applied_updated_stopped_started_and_deleted(
    our_agent: OurAgent, unique_id: str
) -> None:
    user, names = our_agent.user, {kind: f"{unique_id}-{kind}" for kind in KINDS}

    def expect(status: str) -> None:
        for name in names.values():
            user.until(name, status, within=120)
            assert our_agent.copy(name)["state"] == status

    for version in (1, 2):
        for kind, name in names.items():
            user.apply(name, our_agent.spec(name, kind, version=version))
        expect("Running")
    for status in ("Stopped", "Running"):
        for name in names.values():
            user.want(name, status)
        expect(status)
    for name in names.values():
        user.delete(name)
    for name in names.values():
        user.until_gone(name, within=120)
        assert our_agent.copy(name) == {}


@pytest.mark.parametrize("root", ["plain"], indirect=True, scope="module")
def test_a_failure_is_reported_with_its_cause_and_a_retry_succeeds(
    our_agent: OurAgent, unique_id: str
) -> None:
    names = {kind: f"{unique_id}-{kind}" for kind in KINDS}
    specs = {name: our_agent.spec(name, kind) for kind, name in names.items()}
    our_agent.fail_applies(specs)
    for name, spec in specs.items():
        our_agent.user.apply(name, spec)
    for name in specs:
        our_agent.check_cause(our_agent.user.until(name, "Failed"))

    our_agent.fail_applies(())
    for name in specs:
        our_agent.user.retry(name)
        our_agent.user.until(name, "Running", within=120)
    for name in specs:
        our_agent.user.delete(name)
        our_agent.user.until_gone(name)


@pytest.mark.parametrize("root", ["plain"], indirect=True, scope="module")
def test_an_agent_recreates_a_removed_container_before_the_drift_interval(
    our_agent: OurAgent, unique_id: str
) -> None:
    """The drift interval of the scheduler is 300 s."""
    our_agent.user.apply(unique_id, our_agent.spec(unique_id, "container"))
    our_agent.user.until(unique_id, "Running")
    (first,) = container_ids(our_agent.node_id, unique_id)
    docker("rm", "-f", first)
    eventually(
        lambda: our_agent.copy(unique_id).get("state") == "Running", "the container is made again"
    )

    our_agent.user.delete(unique_id)
    our_agent.user.until_gone(unique_id)


@pytest.mark.full
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_interrupted_by_kill_9_completes(
    our_agent: OurAgent, name: str, side: str, unique_id: str
) -> None:
    step = after_a_kill(our_agent, name, unique_id, side)

    for left in step.names.values():
        if our_agent.user.workload(left) is not None:
            our_agent.user.delete(left)
            our_agent.user.until_gone(left, within=120)
        assert our_agent.copy(left) == {}
