"""Three schedulers under load lose their leader in several ways; no acknowledged request is lost."""

import asyncio
import json
import signal
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

import grpc
import pytest

from e2e import containers
from e2e.cluster import BIN
from e2e.process import Process, free_port, listens_on
from e2e.schedulers import LEASE_SECONDS, SchedulerProcess, Schedulers
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.errors import NotFoundError, PersysError, UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from shells.scheduler.third_party_agent import Node, a_node

# The time the next leader may need to place something, in addition to the leader lease.
TAKE_OVER_SHARE = 1.5
SMALL_CPU = 200
LOAD_CPU = 10
# A call to a frozen etcd member times out after 5 s, and the election of etcd takes time.
GOES_ON_SECONDS = 20
ORDERS_THAT_WAIT = 'persys_scheduler_queue_depth{queue="node_lanes"}'


@dataclass
class Load:
    """Applies through all addresses: the acknowledged ones with their revision, and the time of placement."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    placed_at: list[float] = field(default_factory=list)
    asked_at: dict[int, float] = field(
        default_factory=dict
    )  # by scheduler, the newest acknowledged
    refused: Counter[str] = field(default_factory=Counter)

    def first_after(self, moment: float) -> float | None:
        return next((at for at in self.placed_at if at > moment), None)


@pytest.fixture(scope="module")
def schedulers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Schedulers]:
    created = Schedulers(tmp_path_factory.mktemp("ha"))
    try:
        created.start()
        yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def node_id() -> str:
    return f"ha-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def agent(
    schedulers: Schedulers, node_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """A real agent with the addresses of all schedulers."""
    directory = tmp_path_factory.mktemp("agent")
    port = free_port()
    created = Process(
        [str(BIN / "persys-agent"), "-insecure"],
        {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "PERSYS_GRPC_PORT": str(port),
            "PERSYS_METRICS_PORT": str(free_port()),
            "PERSYS_NODE_ID": node_id,
            "PERSYS_NODE_LABELS": "real=yes",
            "PERSYS_STATE_PATH": str(directory / "agent.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(directory / "volumes"),
            "PERSYS_SCHEDULER_ADDR": schedulers.addresses,
        },
        log=directory / "agent.log",
        ready=lambda: listens_on(port),
    )
    try:
        created.start()
        yield created
    finally:
        created.close()
        containers.remove(containers.container_ids(node_id))


@pytest.fixture(scope="module")
def client(schedulers: Schedulers) -> Iterator[SchedulerClient]:
    with SchedulerClient(f"ipv4:{schedulers.addresses}") as created:
        yield created


@pytest.fixture
def watch(schedulers: Schedulers, tmp_path: Path) -> Iterator[Process]:
    """The events that a user watches continuously."""
    created = Process(
        [
            *(str(BIN / "persysctl"), "--scheduler", schedulers.addresses, "-o", "json"),
            *("events", "--watch", "--after", "0"),
        ],
        {"HOME": str(tmp_path), "PERSYS_INSECURE": "true"},
        log=tmp_path / "events.json",
        ready=lambda: True,
    )
    created.start()
    yield created
    created.close()


async def test_no_failover_loses_acknowledged_workloads(
    schedulers: Schedulers,
    agent: Process,
    node_id: str,
    client: SchedulerClient,
    watch: Process,
    sleeper: pb.WorkloadSpec,
) -> None:
    real = pb.WorkloadSpec()
    real.CopyFrom(sleeper)
    real.placement.constraints.append("real = yes")
    await asyncio.to_thread(run_for_real, client, "steady", real)
    before = containers.inspect(containers.container_ids(node_id))
    load = Load()
    async with some_nodes(schedulers) as nodes, loaded(schedulers, load):
        frozen = partial(frozen_with_orders, nodes=nodes)
        for lose in (killed, frozen, with_frozen_members, cut_from_a_member, stopped):
            await lose(schedulers, load)
            check_copies(nodes)
        assert agent.runs
        await asyncio.to_thread(run_for_real, client, "late", real)

    listed = await asyncio.to_thread(client.list_workloads)
    views = {view.workload_id: view for view in listed}
    assert len(load.acknowledged) > 50, load.refused
    lost = {
        name: revision
        for name, revision in load.acknowledged.items()
        if name not in views or views[name].revision_id != revision
    }
    assert lost == {}
    waiting = {name for name, view in views.items() if not view.assigned_node_id}
    assert all(is_contested(name) for name in waiting)
    on_small = [view for view in listed if view.assigned_node_id == "small"]
    assert 0 < len(on_small) * LOAD_CPU <= SMALL_CPU
    check_copies(nodes)
    after = containers.inspect(containers.container_ids(node_id, "steady"))
    assert after == before
    kept = await asyncio.to_thread(client.list_events)
    sequences = [event.sequence for event in kept.events]
    await asyncio.to_thread(
        eventually,
        lambda: len(seen_by(watch)) >= len(sequences),
        lambda: f"{len(sequences)} events in the watch: {len(seen_by(watch))}",
    )
    assert seen_by(watch)[: len(sequences)] == sequences


def test_running_schedulers_do_not_treat_a_wiped_etcd_as_a_new_cluster(
    schedulers: Schedulers,
    agent: Process,
    node_id: str,
    client: SchedulerClient,
    sleeper: pb.WorkloadSpec,
) -> None:
    real = pb.WorkloadSpec()
    real.CopyFrom(sleeper)
    real.placement.constraints.append("real = yes")
    run_for_real(client, "precious", real)
    schedulers.wait_until_all_follow()
    names = {view.workload_id for view in client.list_workloads()}
    before = containers.inspect(containers.container_ids(node_id))

    for etcd in schedulers.etcds:
        etcd.lose_data()
    schedulers.start_etcd()

    eventually(
        lambda: all(one.health()["mode"] == "recovery" for one in schedulers.all),
        lambda: str([one.health() for one in schedulers.all]),
    )
    assert {view.workload_id for view in client.list_workloads()} == names
    assert schedulers.etcds[0].etcdctl("get", "/cluster") == ""

    response = client.rebuild_from_agents()
    assert response.workloads == len(names)
    eventually(
        lambda: all(one.health()["mode"] == "normal" for one in schedulers.all), "normal mode"
    )
    run_for_real(client, "afterwards", real)
    assert containers.inspect(containers.container_ids(node_id, "precious"))[0] in before


# The failovers. After each, three schedulers run and one leads.


async def killed(schedulers: Schedulers, load: Load) -> None:
    leader = schedulers.wait_for_leader()
    await asyncio.to_thread(leader.kill)
    await placed_in_time(load, since=monotonic())
    await restart(schedulers, leader)


async def frozen_with_orders(schedulers: Schedulers, load: Load, *, nodes: list[Node]) -> None:
    """Orders that it has not sent yet must not be sent when it resumes."""
    leader = schedulers.wait_for_leader()
    for node in nodes:
        node.agent.behaviour.answer_seconds = 0.5
    await asyncio.to_thread(
        eventually, lambda: leader.metric(ORDERS_THAT_WAIT) > 5, "orders that wait for slow nodes"
    )
    leader.signal(signal.SIGSTOP)
    since = monotonic()
    old = {sender for node in nodes for sender in node.agent.senders}
    try:
        await placed_in_time(load, since=since)
        next_one = await asyncio.to_thread(schedulers.wait_for_leader, other_than=leader)
        await asyncio.sleep(max(0.0, since + LEASE_SECONDS + 1 - monotonic()))
        stored = schedulers.etcds[0].etcdctl("get", "/leader")
        for node in nodes:
            node.agent.behaviour.answer_seconds = 0
            node.agent.senders.clear()
    finally:
        leader.signal(signal.SIGCONT)
    await asyncio.to_thread(
        eventually, lambda: leader.health()["role"] == "standby", "the frozen one to stand by"
    )
    assert next_one.leads
    assert schedulers.etcds[0].etcdctl("get", "/leader") == stored
    await until_placed(load, since=monotonic(), within=LEASE_SECONDS)
    await asyncio.to_thread(
        eventually, lambda: any(node.agent.senders for node in nodes), "an order by the next one"
    )
    # One order per node may have been passed to gRPC before the leader was frozen.
    assert all(sum(sender in old for sender in node.agent.senders) <= 1 for node in nodes)


async def with_frozen_members(schedulers: Schedulers, load: Load) -> None:
    """Two etcd members hang one after the other and keep their connections: first the leader, then the next
    one, to which the clients have moved.
    """
    members = schedulers.etcds
    first = members.index(schedulers.etcd_leader())
    for etcd in (*members[first:], *members[:first]):
        etcd.signal(signal.SIGSTOP)
        since = monotonic()
        try:
            await all_serve(schedulers, load, since=since)
        finally:
            etcd.signal(signal.SIGCONT)
        assert [one.runs for one in schedulers.all] == [True] * 3
        await asyncio.to_thread(schedulers.wait_until_all_follow)


async def all_serve(schedulers: Schedulers, load: Load, *, since: float) -> None:
    """Each scheduler accepts changes since then, and follows the store."""

    def trouble() -> list[object]:
        late = [n for n, _ in enumerate(schedulers.all) if load.asked_at.get(n, 0) < since]
        health = [one.health() for one in schedulers.all]
        return late + [one for one in health if one["mode"] != "normal"]

    while found := await asyncio.to_thread(trouble):
        assert monotonic() < since + GOES_ON_SECONDS, f"{found}: {load.refused}"
        await asyncio.sleep(0.1)


async def cut_from_a_member(schedulers: Schedulers, load: Load) -> None:
    """In one of three runs the killed member is the leader of etcd."""
    leader = schedulers.wait_for_leader()
    etcd = schedulers.etcds[0]
    await asyncio.to_thread(etcd.kill)
    since = monotonic()
    await until_placed(load, since=since, within=20)
    assert [one.runs for one in schedulers.all] == [True] * 3, leader.log[-2000:]
    await asyncio.to_thread(etcd.start)


async def stopped(schedulers: Schedulers, load: Load) -> None:
    leader = schedulers.wait_for_leader()
    assert await asyncio.to_thread(leader.stop) == 0
    since = monotonic()
    took = await until_placed(load, since=since, within=LEASE_SECONDS)
    assert took < LEASE_SECONDS, "a leader that stops must release its lease"
    await restart(schedulers, leader)


async def placed_in_time(load: Load, *, since: float) -> None:
    took = await until_placed(load, since=since, within=4 * LEASE_SECONDS)
    assert took <= TAKE_OVER_SHARE * LEASE_SECONDS


async def until_placed(load: Load, *, since: float, within: float) -> float:
    """Seconds until the next workload was acknowledged and placed."""
    while load.first_after(since) is None:
        assert monotonic() < since + within, f"nothing placed for {within} s: {load.refused}"
        await asyncio.sleep(0.02)
    first = load.first_after(since)
    assert first is not None
    return first - since


async def restart(schedulers: Schedulers, scheduler: SchedulerProcess) -> None:
    await asyncio.to_thread(scheduler.start)
    await asyncio.to_thread(schedulers.wait_until_all_follow)


# The load, and the nodes for it.


@asynccontextmanager
async def some_nodes(schedulers: Schedulers) -> AsyncIterator[list[Node]]:
    """Agents that implement only the contract and connect to the schedulers."""
    async with grpc.aio.insecure_channel(
        f"ipv4:{schedulers.addresses}",
        options=[
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
        ],
    ) as channel:
        stub: AgentControlStub = AgentControlStub(channel)
        async with (
            a_node("large", stub, cpu=100_000, memory=100_000) as large,
            a_node("other", stub, cpu=100_000, memory=100_000) as other,
            a_node("small", stub, cpu=SMALL_CPU, memory=100_000) as small,
        ):
            small.labels = {"small": "yes"}
            nodes = [large, other, small]
            for node in nodes:
                await node.join()
            yield nodes


@asynccontextmanager
async def loaded(schedulers: Schedulers, load: Load) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        applying = [
            group.create_task(keep_applying(one.address, number, load))
            for number, one in enumerate(schedulers.all)
        ]
        yield
        for one in applying:
            one.cancel()


async def keep_applying(address: str, number: int, load: Load) -> None:
    async with grpc.aio.insecure_channel(
        address, options=[("grpc.max_reconnect_backoff_ms", 200)]
    ) as channel:
        stub: AgentControlStub = AgentControlStub(channel)
        count = 0
        while True:
            count += 1
            await apply_one(
                stub,
                f"load-{number}-{count}",
                load,
                number=number,
                contested=is_contested(f"load-{number}-{count}"),
            )
            await asyncio.sleep(0.1)


def is_contested(name: str) -> bool:
    """One in four is constrained to the small node, which cannot run all of them."""
    return int(name.rpartition("-")[2]) % 4 == 0


async def apply_one(
    stub: AgentControlStub, name: str, load: Load, *, number: int, contested: bool
) -> None:
    """Only acknowledged applies count; the result of one without a response is unknown."""
    asked_at = monotonic()
    rules = pb.PlacementRules(constraints=["small = yes"] if contested else ["real != yes"])
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=LOAD_CPU, memory_mb=1),
        container=pb.ContainerSpec(image="nginx"),
        placement=rules,
    )
    try:
        response = await stub.ApplyWorkload(
            pb.ApplyWorkloadRequest(workload_id=name, spec=spec), timeout=8
        )
    except grpc.aio.AioRpcError as err:
        load.refused[err.code().name] += 1
        return
    if response.success:
        load.acknowledged[name] = response.revision_id
        load.asked_at[number] = asked_at
        if not contested:  # it was placed in the same commit
            load.placed_at.append(monotonic())
    else:
        load.refused[response.error_message] += 1


def check_copies(nodes: list[Node]) -> None:
    """No workload has two running copies."""
    copies = Counter(name for node in nodes for name in node.agent.running())
    assert {name: count for name, count in copies.items() if count > 1} == {}


def run_for_real(client: SchedulerClient, name: str, spec: pb.WorkloadSpec) -> None:
    def applied() -> bool:
        try:
            client.apply(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
        except PersysError:
            return False
        return True

    def runs() -> bool:
        try:
            return client.get_workload(name).status == "Running"
        except (UnavailableError, NotFoundError):
            return False  # a standby may answer before it has followed

    eventually(applied, f"{name} to be applied")
    eventually(runs, f"{name} to run")


def seen_by(watch: Process) -> list[int]:
    lines = (line for line in watch.log.splitlines() if line.startswith("{"))
    return [int(json.loads(line)["sequence"]) for line in lines]
