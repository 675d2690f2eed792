"""The stored status is unchanged while it describes the same state of the same assignment."""

import pytest

from builders import NOON, a_situation, a_status, after, an_assignment
from persys.core.agent.health import HEALTH, Health
from persys.core.reconcile.situation import next_status
from persys.model.ids import Revision
from persys.model.status import Failure, FailureReason, Status, WorkloadStatus

LATER = after(60)


def test_an_unchanged_status_is_the_same_record_and_is_not_written() -> None:
    old = a_status()

    again = next_status(
        a_situation(assignment=an_assignment(), workload_status=old), Status.RUNNING, LATER
    )

    assert again is old


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "Unhealthy"},
        {"message": "slow"},
        {"failure": Failure(FailureReason.RUNTIME_ERROR, "it broke")},
        {"revision": Revision("r2")},
        {"epoch": 2},
        {"metadata": {HEALTH: Health.UNHEALTHY.value}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_changed_reason_is_recorded_and_the_status_keeps_its_time(
    changes: dict[str, object],
) -> None:
    situation = a_situation(assignment=an_assignment(), workload_status=a_status())

    changed: WorkloadStatus = next_status(situation, Status.RUNNING, LATER, **changes)  # type: ignore[arg-type]

    assert changed != situation.workload_status
    assert {name: getattr(changed, name) for name in changes} == changes
    assert changed.changed_at == NOON


def test_the_same_status_under_a_new_assignment_is_recorded_with_its_epoch() -> None:
    situation = a_situation(assignment=an_assignment(epoch=2), workload_status=a_status())

    assert next_status(situation, Status.RUNNING, LATER).epoch == 2
