"""Resource usage from two samples per container."""

from datetime import UTC, datetime

import pytest

from persys.core.agent.report import UsageSample, usage_of
from persys.model.ids import WorkloadId
from persys.model.node import WorkloadUsage
from persys.model.spec import WorkloadType

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WEB, SHOP = WorkloadId("web"), WorkloadId("shop")
TYPES = {WEB: WorkloadType.CONTAINER, SHOP: WorkloadType.COMPOSE}
SECOND = 10**9


def a_sample(
    container: str, at: float, cpu_seconds: float, *, workload: WorkloadId = WEB, memory: int = 0
) -> UsageSample:
    return UsageSample(workload, container, at, round(cpu_seconds * SECOND), memory_bytes=memory)


def used(before: list[UsageSample], now: list[UsageSample]) -> dict[WorkloadId, WorkloadUsage]:
    last = {sample.container_id: sample for sample in before}
    return usage_of(last, now, types=TYPES, collected_at=NOW, source="docker")


def test_cpu_usage_is_the_share_of_one_core_between_two_samples() -> None:
    usage = used([a_sample("c", 10, 100)], [a_sample("c", 20, 115)])

    assert usage[WEB].cpu_percent == pytest.approx(150)


def test_usage_of_a_stack_is_the_sum_of_its_containers() -> None:
    before = [a_sample(name, 0, 0, workload=SHOP) for name in ("db", "app")]
    now = [
        a_sample("db", 10, 1, workload=SHOP, memory=300),
        a_sample("app", 10, 4, workload=SHOP, memory=200),
    ]

    usage = used(before, now)[SHOP]

    assert usage.cpu_percent == pytest.approx(50)
    assert (usage.memory_bytes, usage.type) == (500, WorkloadType.COMPOSE)


def test_no_usage_is_reported_after_one_sample() -> None:
    assert used([], [a_sample("c", 10, 5)]) == {}


def test_a_container_that_started_again_counts_from_nothing() -> None:
    usage = used([a_sample("c", 10, 100)], [a_sample("c", 20, 1)])

    assert usage[WEB].cpu_percent == pytest.approx(10)


def test_usage_of_an_unknown_workload_is_left_out() -> None:
    unassigned = WorkloadId("stranger")
    looks = [a_sample("c", at, at, workload=unassigned) for at in (1, 2)]

    assert used(looks[:1], looks[1:]) == {}
