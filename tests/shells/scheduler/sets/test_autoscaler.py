"""Automatic scaling by the usage that nodes report, and by a Prometheus server."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from persys.errors import UnavailableError
from persys.model.ids import WorkloadId
from persys.model.node import WorkloadUsage
from persys.model.spec import WorkloadType
from persys.scheduler.sets.autoscaler import IDENTITY, parsed_value, query_value
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set

MINUTES_6 = 360.0


def a_scaled_set(**scale: object) -> pb.SetSpec:
    spec = a_set(replicas=2)
    spec.scale.CopyFrom(pb.ScalePolicy(min=1, max=6, cooldown_seconds=1, **scale))  # type: ignore[arg-type]
    return spec


async def applied(cluster: Cluster, sets: SetCalls, spec: pb.SetSpec) -> None:
    await cluster.join()
    await sets.applied(spec)
    await sets.until_steady(members=2)


def use(cluster: Cluster, *, cpu_percent: float) -> None:
    """Every member reports this usage, in percent of one core."""
    now = cluster.clock.now()
    for workload_id in cluster.app.cluster.members.of("web"):
        cluster.app.cluster.workloads[WorkloadId(workload_id)].usage = WorkloadUsage(
            workload_id, WorkloadType.CONTAINER, now, cpu_percent=cpu_percent
        )


async def sample(cluster: Cluster, *, after: float = 15.0) -> None:
    cluster.clock.ahead += timedelta(seconds=after)
    await cluster.app.autoscaler.sample_all()


async def test_more_usage_than_the_target_adds_members_at_once(
    cluster: Cluster, sets: SetCalls
) -> None:
    await applied(cluster, sets, a_scaled_set(cpu_percent=50))
    use(cluster, cpu_percent=10)  # of 100 millicores: 100 percent

    await sample(cluster)

    view = await sets.until_steady(members=4)
    assert "cpu 100%, target 50%" in view.scale_reason
    events = await cluster.control.stub.ListEvents(
        pb.ListEventsRequest(workload_id="web", kinds=["SetScaled"]), timeout=10
    )
    assert [(one.identity, "from 2 to 4" in one.message) for one in events.events] == [
        (IDENTITY, True)
    ]


async def test_less_usage_removes_members_only_after_minutes(
    cluster: Cluster, sets: SetCalls
) -> None:
    await applied(cluster, sets, a_scaled_set(cpu_percent=50))

    use(cluster, cpu_percent=1)
    await sample(cluster)
    assert cluster.app.cluster.sets["web"].replicas == 2
    for _ in range(2):
        cluster.clock.ahead += timedelta(seconds=MINUTES_6)
        use(cluster, cpu_percent=1)
        await sample(cluster)

    assert cluster.app.cluster.sets["web"].replicas == 1


async def test_samples_write_nothing(cluster: Cluster, sets: SetCalls) -> None:
    await applied(cluster, sets, a_scaled_set(cpu_percent=50))
    before = cluster.store.transactions

    for _ in range(10):
        use(cluster, cpu_percent=5)
        await sample(cluster)

    assert cluster.store.transactions == before
    assert "cpu 50%, target 50%" in (await sets.get()).scale_reason


async def test_members_that_report_no_usage_are_not_scaled(
    cluster: Cluster, sets: SetCalls
) -> None:
    await applied(cluster, sets, a_scaled_set(cpu_percent=50))

    for _ in range(3):
        await sample(cluster, after=MINUTES_6)

    assert cluster.app.cluster.sets["web"].replicas == 2
    assert "cpu is not known" in (await sets.get()).scale_reason


async def test_a_new_leader_does_not_scale_down_by_old_samples(
    cluster: Cluster, sets: SetCalls
) -> None:
    await applied(cluster, sets, a_scaled_set(cpu_percent=50))
    use(cluster, cpu_percent=1)
    await sample(cluster)

    await cluster.stop()
    await cluster.start()
    cluster.clock.ahead += timedelta(seconds=MINUTES_6)
    use(cluster, cpu_percent=1)
    await sample(cluster)

    assert cluster.app.cluster.sets["web"].replicas == 2


class Prometheus:
    """A server that sends the same response to every request."""

    def __init__(self) -> None:
        self.body = b""
        self.status = "200 OK"
        self.requests: list[str] = []
        self.is_silent = False
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def says(self, *values: object) -> None:
        series = ",".join(f'{{"metric":{{}},"value":[1,"{value}"]}}' for value in values)
        text = f'{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}'
        self.body = text.encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head.decode().splitlines()[0])
        if self.is_silent:
            await reader.read()
        headers = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(self.body)}\r\n"
        writer.write(f"{headers}Location: http://127.0.0.1:1/\r\n\r\n".encode() + self.body)
        writer.close()


@pytest.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    server = Prometheus()
    yield server
    await server.stop()


async def test_a_prometheus_query_scales_by_its_target_per_member(
    cluster: Cluster, sets: SetCalls, prometheus: Prometheus
) -> None:
    url = await prometheus.start()
    prometheus.says(200)
    spec = a_scaled_set(
        prometheus_url=url, prometheus_query='sum(rate(x{set="web"}[1m]))', prometheus_target=50
    )
    await applied(cluster, sets, spec)

    await sample(cluster)

    await sets.until_steady(members=4)
    assert prometheus.requests[0].startswith("GET /api/v1/query?query=sum")


async def test_a_prometheus_server_that_fails_never_scales_down_and_is_shown(
    cluster: Cluster, sets: SetCalls, prometheus: Prometheus
) -> None:
    url = await prometheus.start()
    spec = a_scaled_set(prometheus_url=url, prometheus_query="x", prometheus_target=50)
    await applied(cluster, sets, spec)
    prometheus.status = "503 Service Unavailable"

    for _ in range(3):
        await sample(cluster, after=MINUTES_6)

    assert cluster.app.cluster.sets["web"].replicas == 2
    assert "Prometheus responded with status 503" in (await sets.get()).scale_reason


async def test_a_query_ends_at_its_deadline(prometheus: Prometheus) -> None:
    url = await prometheus.start()
    prometheus.is_silent = True

    with pytest.raises(UnavailableError, match="did not respond within"):
        await query_value(url, "x", deadline=timedelta(seconds=0.2))


async def test_a_redirect_is_not_followed(prometheus: Prometheus) -> None:
    url = await prometheus.start()
    prometheus.status = "302 Found"

    with pytest.raises(UnavailableError, match="status 302"):
        await query_value(url, "x")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html>", "not one of Prometheus"),
        (b'{"data":{"resultType":"vector","result":[]}}', "0 values: expected one"),
        (b'{"data":{"resultType":"matrix","result":[]}}', "not a vector"),
        (b'{"data":{"resultType":"scalar","result":[1,"NaN"]}}', "not a number"),
        (b'{"data":{"resultType":"scalar","result":[1,"x"]}}', "not a number"),
    ],
)
def test_a_response_without_one_number_says_why(content: bytes, problem: str) -> None:
    with pytest.raises(UnavailableError, match=problem):
        parsed_value(content)


def test_a_scalar_is_a_value() -> None:
    assert parsed_value(b'{"data":{"resultType":"scalar","result":[1,"2.5"]}}') == 2.5
