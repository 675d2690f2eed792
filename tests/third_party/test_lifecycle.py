"""Our scheduler with a third-party agent: every lifecycle step of a workload, in plain text and with mTLS."""

import pytest

from third_party.pairings import PULL_ERROR, OurScheduler
from third_party.user import KINDS


@pytest.fixture
def names(unique_id: str) -> dict[str, str]:
    return {kind: f"{unique_id}-{kind}" for kind in KINDS}


def test_workloads_of_all_types_are_applied_updated_stopped_started_and_deleted(
    pairing: OurScheduler, names: dict[str, str]
) -> None:
    user, revisions = pairing.user, {}

    def expect(status: str) -> None:
        for name in names.values():
            revisions[name] = user.until(name, status).revision_id
            assert pairing.copy(name) == {"state": status, "revision": revisions[name]}

    for version in (1, 2):
        before = dict(revisions)
        for kind, name in names.items():
            user.apply(name, pairing.spec(name, kind, version=version))
        expect("Running")
        assert not before.items() & revisions.items()
    for status in ("Stopped", "Running"):
        for name in names.values():
            user.want(name, status)
        expect(status)
    for name in names.values():
        user.delete(name)
    for name in names.values():
        user.until_gone(name)
        assert pairing.copy(name) == {}


@pytest.mark.parametrize("root", ["mtls"], indirect=True, scope="module")
def test_a_node_identified_by_common_name_accepts_orders(
    pairing: OurScheduler, unique_id: str
) -> None:
    agent = pairing.add_agent(has_own_name=True)
    names = [f"{unique_id}-{number}" for number in range(2)]
    for name in names:  # the first goes to the node with more free capacity
        pairing.user.apply(name, pairing.spec(name, "container"))
    for name in names:
        pairing.user.until(name, "Running")

    assert [name for name in names if agent.copy(name)]
    agent.kill()
    pairing.agents.remove(agent)


def test_a_failure_is_shown_with_its_cause_and_a_retry_succeeds(
    pairing: OurScheduler, names: dict[str, str]
) -> None:
    user = pairing.user
    pairing.fail_applies(names.values())
    for kind, name in names.items():
        user.apply(name, pairing.spec(name, kind))
    for name in names.values():
        failed = user.until(name, "Failed")
        assert failed.failure_reason == "IMAGE_PULL_FAILED"
        assert PULL_ERROR in failed.reason.message

    pairing.fail_applies(())
    for name in names.values():
        user.retry(name)
    for name in names.values():
        user.until(name, "Running")
