"""The first report of a node after a start mostly matches the records, and then needs no decision."""

import pytest
from msgspec.structs import replace

from builders import a_status, a_workload, an_assignment, an_observation
from persys.core.agent.health import HEALTH, Health
from persys.core.agent.report import RESTART_COUNT, STARTED_AT
from persys.core.reconcile.situation import confirms_status
from persys.model.status import Actual, Failure, FailureReason, Observation, Status
from persys.model.workload import Desired


def test_an_observation_equal_to_the_record_confirms_it() -> None:
    assert confirms_status(an_observation(), a_status(), a_workload(), an_assignment())


@pytest.mark.parametrize(
    "seen",
    [
        an_observation(Actual.STOPPED),
        an_observation(Actual.ABSENT),
        an_observation(revision="r0"),
        an_observation(epoch=2),
        an_observation(failure=Failure(FailureReason.RUNTIME_ERROR, "it broke")),
    ],
)
def test_a_different_observation_confirms_nothing(seen: Observation) -> None:
    assert not confirms_status(seen, a_status(), a_workload(), an_assignment())


@pytest.mark.parametrize(
    "metadata",
    [
        {HEALTH: Health.UNHEALTHY.value},
        {HEALTH: Health.HEALTHY.value, RESTART_COUNT: "1"},
        {HEALTH: Health.HEALTHY.value, RESTART_COUNT: "0", STARTED_AT: "later"},
    ],
)
def test_another_health_and_a_restart_are_not_confirmed(metadata: dict[str, str]) -> None:
    stored = {HEALTH: Health.HEALTHY.value, RESTART_COUNT: "0", STARTED_AT: "before"}
    status = replace(a_status(), metadata=stored)

    assert confirms_status(
        an_observation(metadata=dict(stored)), status, a_workload(), an_assignment()
    )
    assert not confirms_status(
        an_observation(metadata=metadata), status, a_workload(), an_assignment()
    )


def test_another_status_or_intent_is_not_confirmed() -> None:
    seen = an_observation()
    assert not confirms_status(seen, a_status(Status.PENDING), a_workload(), an_assignment())
    assert not confirms_status(
        seen, a_status(), a_workload(desired=Desired.STOPPED), an_assignment()
    )
    assert not confirms_status(seen, a_status(), a_workload(revision="r2"), an_assignment())
    assert not confirms_status(seen, a_status(), a_workload(), an_assignment(epoch=2))
