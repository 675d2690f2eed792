"""Images through the scheduler: one upload for many nodes, with an endpoint or on control streams."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.api.test_control_stream import a_stream_agent
from shells.scheduler.harness import Cluster, Control, eventually
from shells.scheduler.third_party_agent import Agent, Context, Node

PART = b"x" * 100_000
PARTS = 600  # twice what gRPC holds on the way, at least


class ImageAgent(Agent):
    """An agent that receives images at the pace of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.images: dict[str, bytes] = {}
        self.starts_taken: list[agent_pb2.AddImageStart] = []
        self.parts_taken = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.has_part = False
        self.has_left = False
        self.refuses_after = -1  # parts

    async def ListImages(  # noqa: N802
        self, request: agent_pb2.ListImagesRequest, context: Context
    ) -> agent_pb2.ListImagesResponse:
        views = [
            agent_pb2.ImageView(
                name=name,
                sha256=str(len(data)),
                format="qcow2",
                size_bytes=len(data),
                added_at=1_700_000_000,
                used_by=["web"] if name == "used" else [],
            )
            for name, data in self.images.items()
        ]
        return agent_pb2.ListImagesResponse(images=views)

    async def AddImage(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.AddImageRequest], context: Context
    ) -> None:
        start = (await anext(requests)).start
        self.starts_taken.append(start)
        data, is_whole = bytearray(), False
        try:
            await context.write(agent_pb2.ImageProgress(size_bytes=start.size_bytes))
            async for one in requests:
                self.has_part = True
                await self.may_go_on.wait()
                if self.parts_taken == self.refuses_after:
                    await context.write(agent_pb2.ImageProgress(problem="no room for it"))
                    return
                self.parts_taken += 1
                data += one.data
                await context.write(agent_pb2.ImageProgress(received_bytes=len(data)))
            is_whole = True
        finally:
            self.has_left = not is_whole
        self.images[start.name] = bytes(data)
        view = agent_pb2.ImageView(name=start.name, sha256="abc")
        await context.write(agent_pb2.ImageProgress(received_bytes=len(data), image=view))

    async def RemoveImage(  # noqa: N802
        self, request: agent_pb2.RemoveImageRequest, context: Context
    ) -> agent_pb2.RemoveImageResponse:
        if request.name == "used":
            return agent_pb2.RemoveImageResponse(message="image used is needed by web")
        del self.images[request.name]
        return agent_pb2.RemoveImageResponse(success=True)


async def a_store(cluster: Cluster, name: str) -> tuple[Node, ImageAgent]:
    store = ImageAgent()
    await store.start()
    node = await cluster.join(name, types=("container", "vm"))
    await node.agent.stop()
    node.agent = store
    await node.register()
    return node, store


class Sender:
    """Sends an image according to the contract: after the first response, and until the last one."""

    def __init__(self, control: Control, parts: int, **start: object) -> None:
        self.sent = 0
        self._parts = parts
        self._start = pb.AddImageStart(**{"name": "debian", **start})  # type: ignore[arg-type]
        self._begun = asyncio.Event()
        self._over = False
        self.call = control.stub.AddImage(self._messages(), timeout=60)

    async def ends(self) -> dict[str, pb.ImageProgress]:
        """The last progress of each node."""
        ends = {}
        async for progress in self.call:
            self._begun.set()
            if progress.node_id:
                ends[progress.node_id] = progress
            elif progress.done:
                self._over = True
        return ends

    async def _messages(self) -> AsyncIterator[pb.AddImageRequest]:
        yield pb.AddImageRequest(start=self._start)
        await self._begun.wait()
        while self.sent < self._parts and not self._over:
            yield pb.AddImageRequest(data=PART)
            self.sent += 1


async def added(cluster: Cluster, parts: int = 3, **start: object) -> dict[str, pb.ImageProgress]:
    return await Sender(cluster.control, parts, **start).ends()


async def listed(cluster: Cluster, **only: str) -> pb.ListImagesResponse:
    response: pb.ListImagesResponse = await cluster.control.stub.ListImages(
        pb.ListImagesRequest(**only), timeout=10
    )
    return response


async def removed(
    cluster: Cluster, name: str, node_ids: Iterable[str] = ()
) -> pb.RemoveImageResponse:
    request = pb.RemoveImageRequest(name=name, node_ids=list(node_ids))
    response: pb.RemoveImageResponse = await cluster.control.stub.RemoveImage(request, timeout=10)
    return response


async def test_an_image_is_sent_to_every_node_that_runs_virtual_machines(cluster: Cluster) -> None:
    one, first = await a_store(cluster, "n1")
    two, second = await a_store(cluster, "n2")
    await cluster.join("n3")  # runs none

    ends = await added(cluster, sha256="A" * 64, size_bytes=300_000)

    assert ends.keys() == {one.id, two.id}
    assert all(end.done and not end.problem and end.sha256 == "abc" for end in ends.values())
    assert first.images == second.images == {"debian": 3 * PART}
    (start,) = first.starts_taken
    assert (start.sha256, start.size_bytes) == ("a" * 64, 300_000)


async def test_only_the_nodes_that_are_named_get_it(cluster: Cluster) -> None:
    _, first = await a_store(cluster, "n1")
    two, _ = await a_store(cluster, "n2")

    ends = await added(cluster, 0, node_ids=[two.id], url="http://images/debian")

    assert ends.keys() == {two.id}
    assert first.starts_taken == []
    with pytest.raises(grpc.aio.AioRpcError, match="node not found: n9"):
        await added(cluster, node_ids=["n9"])


@pytest.mark.parametrize("refuses_after", [0, 5])
async def test_a_node_that_fails_does_not_stop_the_others(
    cluster: Cluster, refuses_after: int
) -> None:
    bad, failing = await a_store(cluster, "n1")
    good, store = await a_store(cluster, "n2")
    failing.refuses_after = refuses_after
    gone = await cluster.join("n3", types=("vm",))
    await gone.agent.stop()

    ends = await added(cluster, 40)

    assert "no room for it" in ends[bad.id].problem
    assert ends[bad.id].done
    assert ends[gone.id].problem
    assert not ends[good.id].problem
    assert store.images == {"debian": 40 * PART}


@pytest.mark.parametrize("way", ["called", "stream"])
async def test_the_slowest_node_sets_the_pace(cluster: Cluster, way: str) -> None:
    _, fast = await a_store(cluster, "n1")
    async with a_slow_store(cluster, way) as slow, asyncio.TaskGroup() as group:
        slow.may_go_on.clear()
        sender = Sender(cluster.control, PARTS, node_ids=["n1", "slow"])
        responses = group.create_task(sender.ends())
        before = -1

        async def is_stalled() -> bool:
            nonlocal before
            before, now = sender.sent, before
            await asyncio.sleep(0.3)
            return now == sender.sent > 0

        await eventually(is_stalled, lambda: "the sender to wait")
        assert sender.sent < PARTS / 2
        assert fast.parts_taken < PARTS / 2
        slow.may_go_on.set()
        ends = await responses

        assert all(end.done and not end.problem for end in ends.values())
        assert len(fast.images["debian"]) == len(slow.images["debian"]) == PARTS * len(PART)


@asynccontextmanager
async def a_slow_store(cluster: Cluster, way: str) -> AsyncIterator[ImageAgent]:
    if way == "called":
        _, store = await a_store(cluster, "slow")
        yield store
        return
    store = ImageAgent()
    async with a_stream_agent(cluster, "slow", agent=store):
        yield store


def upload_started(store: ImageAgent) -> Callable[[], Awaitable[bool]]:
    async def has_begun() -> bool:
        return bool(store.starts_taken)

    return has_begun


async def test_nodes_are_cancelled_when_the_sender_disconnects(cluster: Cluster) -> None:
    _, store = await a_store(cluster, "n1")
    store.may_go_on.clear()

    async def has_part() -> bool:
        return store.has_part

    async with asyncio.TaskGroup() as group:
        sender = Sender(cluster.control, PARTS)
        reading = group.create_task(sender.ends())
        await eventually(has_part, lambda: "the agent to have a part")
        reading.cancel()

    async def has_left() -> bool:
        return store.has_left

    await eventually(has_left, lambda: "the agent to know")
    assert store.images == {}


async def test_an_image_is_refused_without_a_node_that_runs_virtual_machines(
    cluster: Cluster,
) -> None:
    await cluster.join("n1")

    with pytest.raises(grpc.aio.AioRpcError, match="runs virtual machines"):
        await added(cluster)


@pytest.mark.parametrize("start", [{"name": ""}, {"name": "http://x/y"}, {"sha256": "12"}], ids=str)
async def test_a_wrong_start_is_refused_here(cluster: Cluster, start: dict[str, str]) -> None:
    await a_store(cluster, "n1")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await Sender(cluster.control, 1, **start).ends()

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_same_image_on_several_nodes_is_one_and_another_content_is_another(
    cluster: Cluster,
) -> None:
    one, first = await a_store(cluster, "n1")
    two, second = await a_store(cluster, "n2")
    three, third = await a_store(cluster, "n3")
    first.images = {"debian": b"same", "used": b"u"}
    second.images = {"debian": b"same"}
    third.images = {"debian": b"other!"}
    gone = await cluster.join("n4", types=("vm",))
    await gone.agent.stop()

    found = await listed(cluster)

    assert [(view.name, view.sha256, list(view.node_ids)) for view in found.images] == [
        ("debian", "4", [one.id, two.id]),
        ("debian", "6", [three.id]),
        ("used", "1", [one.id]),
    ]
    assert list(found.images[2].used_by) == ["web"]
    assert found.images[0].added_at.seconds == 1_700_000_000
    assert [problem.node_id for problem in found.problems] == [gone.id]
    only = await listed(cluster, name="debian", node_id=two.id)
    assert [list(view.node_ids) for view in only.images] == [[two.id]]


async def test_an_image_is_removed_and_nodes_that_keep_it_are_named(cluster: Cluster) -> None:
    one, first = await a_store(cluster, "n1")
    two, second = await a_store(cluster, "n2")
    first.images = {"debian": b"d", "used": b"u"}
    second.images = {"old": b"o"}

    response = await removed(cluster, "debian")
    assert (list(response.node_ids), list(response.problems)) == ([one.id], [])
    assert first.images.keys() == {"used"}

    kept = await removed(cluster, "used")
    assert [(each.node_id, each.problem) for each in kept.problems] == [
        (one.id, "image used is needed by web")
    ]
    named = await removed(cluster, "old", [one.id, two.id])
    assert list(named.node_ids) == [two.id]
    assert [each.problem for each in named.problems] == ["has no image old"]
    with pytest.raises(grpc.aio.AioRpcError, match="image not found: debian"):
        await removed(cluster, "debian")


async def test_an_image_stays_on_a_node_while_an_assigned_vm_needs_it(
    cluster: Cluster,
) -> None:
    node, store = await a_store(cluster, "n1")
    store.images = {"debian": b"d"}
    store.behaviour.work_seconds = 60  # the agent has just started
    node.features = ["image:debian", "machine-policies"]
    await node.register()
    vm = pb.VMSpec(vcpus=1, memory_mb=64, os_image="debian")
    response = await cluster.control.send(
        pb.ApplyWorkloadRequest(workload_id="shop", spec=pb.WorkloadSpec(type="vm", vm=vm))
    )
    assert response.success, response.error_message

    async def sent() -> bool:
        return bool(store.applies)

    await eventually(sent, lambda: "the order to be sent")
    kept = await removed(cluster, "debian")

    assert [each.problem for each in kept.problems] == ["image debian is used by shop"]
    assert store.images
