"""Heartbeats on the control stream: each gets the response with its number."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from builders import a_supervisor
from persys.agent.api.service import AgentApi
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.uplink import stream_link
from persys.agent.uplink.link import SchedulerLostError
from persys.agent.uplink.session import heartbeat_interval
from persys.agent.uplink.stream_link import Call, StreamLink
from persys.wire.gen.control.v1 import control_pb2


class FakeStream:
    """A stream that the test controls."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[control_pb2.ControlMessage] = asyncio.Queue()
        self.coming: asyncio.Queue[control_pb2.ControlMessage | None] = asyncio.Queue()

    async def initial_metadata(self) -> None: ...

    async def write(self, message: control_pb2.ControlMessage) -> None:
        await self.sent.put(message)

    async def __aiter__(self) -> AsyncIterator[control_pb2.ControlMessage]:
        while (message := await self.coming.get()) is not None:
            yield message


def answer_to(beat: control_pb2.ControlMessage) -> control_pb2.ControlMessage:
    draining = beat.heartbeat.node_id == "second"
    response = control_pb2.HeartbeatResponse(acknowledged=True, drain_node=draining)
    return control_pb2.ControlMessage(heartbeat_answer=response, number=beat.number)


def registered(instance_id: str) -> control_pb2.ControlMessage:
    response = control_pb2.RegisterNodeResponse(accepted=True, instance_id=instance_id)
    return control_pb2.ControlMessage(registered=response)


async def listen(link: StreamLink, group: asyncio.TaskGroup) -> None:
    with pytest.raises(SchedulerLostError):
        await link.listen(group)


async def test_responses_out_of_order_reach_their_heartbeats() -> None:
    stream = FakeStream()
    calls = TunnelServer(cast("AgentApi", None), a_supervisor())
    link = StreamLink(cast("Call", stream), calls, is_stale=lambda: False)
    async with asyncio.TaskGroup() as group:
        group.create_task(listen(link, group))
        heartbeats = [
            group.create_task(link.heartbeat(control_pb2.HeartbeatRequest(node_id=name)))
            for name in ("first", "second")
        ]
        sent = [await stream.sent.get(), await stream.sent.get()]
        for heartbeat in reversed(sent):
            stream.coming.put_nowait(answer_to(heartbeat))
        await asyncio.wait(heartbeats)
        stream.coming.put_nowait(None)

    assert [heartbeat.result().drain_node for heartbeat in heartbeats] == [False, True]


class BlockedStream(FakeStream):
    """A stream whose peer does not read."""

    async def write(self, message: control_pb2.ControlMessage) -> None:
        await asyncio.Event().wait()


async def test_a_heartbeat_that_cannot_be_written_in_time_means_a_lost_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_link, "CALL_DEADLINE_SECONDS", 0.05)
    calls = TunnelServer(cast("AgentApi", None), a_supervisor())
    link = StreamLink(cast("Call", BlockedStream()), calls, is_stale=lambda: False)

    with pytest.raises(SchedulerLostError, match="no response to a heartbeat"):
        await link.heartbeat(control_pb2.HeartbeatRequest(node_id="n1"))


async def test_an_unexpected_response_is_not_used_for_a_registration() -> None:
    stream = FakeStream()
    calls = TunnelServer(cast("AgentApi", None), a_supervisor())
    link = StreamLink(cast("Call", stream), calls, is_stale=lambda: False)
    stream.coming.put_nowait(registered("stale"))
    async with asyncio.TaskGroup() as group:
        group.create_task(listen(link, group))
        await asyncio.sleep(0)
        task = group.create_task(link.register(control_pb2.RegisterNodeRequest(node_id="n1")))
        await stream.sent.get()
        stream.coming.put_nowait(registered("fresh"))
        await asyncio.wait([task])
        stream.coming.put_nowait(None)

    assert task.result().instance_id == "fresh"


@pytest.mark.parametrize(
    ("requested", "seconds"), [(0, 10), (1, 1), (30, 30), (-5, 1), (301, 300), (2**31 - 1, 300)]
)
def test_the_heartbeat_interval_of_a_scheduler_is_limited(requested: int, seconds: float) -> None:
    assert heartbeat_interval(requested) == seconds
