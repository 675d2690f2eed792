"""What events of containers tell without a call to Docker."""

from datetime import UTC, datetime

import pytest

from persys.agent.runtimes.docker.events import ContainerEvent, SeenContainers
from persys.core.agent.progress import Artefact, Condition
from persys.model.ids import Revision, WorkloadId

WEB = WorkloadId("web")


def an_event(action: str, *, container_id: str = "c1") -> ContainerEvent:
    return ContainerEvent(WEB, container_id, action)


def a_container(condition: Condition) -> Artefact:
    started_at = datetime(2026, 1, 1, tzinfo=UTC)
    return Artefact("c1", "persys-web", condition, Revision("r1"), started_at=started_at)


def opened(*workloads: str) -> SeenContainers:
    seen = SeenContainers()
    seen.open()
    seen.listed(map(WorkloadId, workloads))
    return seen


def test_nothing_is_absent_before_the_containers_were_listed() -> None:
    seen = SeenContainers()
    assert not seen.is_absent(WEB)

    seen.open()
    assert not seen.is_absent(WEB)


def test_a_workload_without_a_listed_container_is_absent() -> None:
    seen = opened("db")

    assert seen.is_absent(WEB)
    assert not seen.is_absent(WorkloadId("db"))


def test_nothing_is_absent_after_the_stream_has_ended() -> None:
    seen = opened()
    seen.close()

    assert not seen.is_absent(WEB)


def test_a_container_that_was_created_during_the_list_is_not_absent() -> None:
    seen = SeenContainers()
    seen.open()
    seen.add(WEB)
    seen.listed(())

    assert not seen.is_absent(WEB)


def test_a_container_of_another_creator_is_not_absent() -> None:
    seen = opened()

    assert not seen.is_news(an_event("create"))
    assert not seen.is_absent(WEB)


def test_a_workload_whose_container_was_not_found_is_absent() -> None:
    seen = opened("web")
    seen.remove(WEB)

    assert seen.is_absent(WEB)


def test_a_start_after_an_inspection_of_the_running_container_is_not_news() -> None:
    seen = opened()
    seen.is_news(an_event("create"))
    seen.inspected(a_container(Condition.RUNNING), event_count=seen.event_count)

    assert not seen.is_news(an_event("start"))


def test_a_start_before_the_inspection_has_returned_is_news() -> None:
    seen = opened()

    assert seen.is_news(an_event("start"))


def test_a_restart_is_news_twice() -> None:
    seen = opened()
    seen.inspected(a_container(Condition.RUNNING), event_count=seen.event_count)

    assert seen.is_news(an_event("die"))
    assert seen.is_news(an_event("start"))


def test_an_inspection_from_before_the_end_does_not_hide_the_next_start() -> None:
    seen = opened()
    sent = seen.event_count
    seen.is_news(an_event("die"))
    seen.inspected(a_container(Condition.RUNNING), event_count=sent)

    assert seen.is_news(an_event("start"))


def test_an_inspection_that_shows_the_end_does_not_hide_the_next_start() -> None:
    seen = opened()
    seen.inspected(a_container(Condition.RUNNING), event_count=seen.event_count)
    seen.inspected(a_container(Condition.EXITED), event_count=seen.event_count)

    assert seen.is_news(an_event("start"))


def test_a_new_stream_hides_no_start() -> None:
    seen = opened()
    seen.inspected(a_container(Condition.RUNNING), event_count=seen.event_count)
    seen.open()

    assert seen.is_news(an_event("start"))


@pytest.mark.parametrize(
    "action", ["die", "destroy", "oom", "pause", "unpause", "rename", "update", "health_status"]
)
def test_every_other_event_is_news(action: str) -> None:
    seen = opened()
    seen.inspected(a_container(Condition.RUNNING), event_count=seen.event_count)

    assert seen.is_news(an_event(action))
