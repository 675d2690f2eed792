"""The control stream: everything between an agent and the scheduler on one connection that the agent opens.

Registration and heartbeats are handled like calls; calls to the agent use the same stream in reverse.
An invalid message of the agent ends the stream with a status, and the agent registers again.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from persys.errors import InvalidError, PersysError
from persys.infra.aio.owned_work import OwnedWork
from persys.model import feature
from persys.model.ids import node_id
from persys.scheduler.api.methods import Context, need
from persys.scheduler.api.nodes import NodesApi
from persys.scheduler.dispatch.tunnel import Tunnel, Tunnels
from persys.wire.gen.control.v1 import control_pb2

Messages = AsyncIterator[control_pb2.ControlMessage]


class ControlStreamApi:
    def __init__(self, nodes: NodesApi, streams: Tunnels, owned: OwnedWork) -> None:
        """`owned` completes the change of a message even if the stream breaks."""
        self._nodes = nodes
        self._streams = streams
        self._owned = owned

    async def ControlStream(self, messages: Messages, context: Context) -> None:
        first = await anext(messages, None)
        if first is None:
            return
        if first.WhichOneof("message") != "register":
            raise InvalidError("register", "is missing: expected it as the first message")
        need(first.register.node_id, "register.node_id")
        tunnel = Tunnel(
            node_id(first.register.node_id),
            takes_calls=feature.CONTROL_STREAM in first.register.features,
        )
        answer = await self._register(first.register)
        await context.write(control_pb2.ControlMessage(registered=answer))
        if not answer.accepted:
            return
        self._streams.add(tunnel)
        self._nodes.stream_opened(tunnel.node_id)
        try:
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(tunnel, messages, context))
                reader.add_done_callback(lambda _: tunnel.close("the stream has ended"))
                await _write(tunnel, context)
                reader.cancel()
        finally:
            self._streams.drop(tunnel, "the stream has ended")
        if not reader.cancelled() and (refusal := reader.result()) is not None:
            raise refusal

    async def _register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        return await self._owned.finish(
            "request", request.node_id, partial(self._nodes.register, request, streamed=True)
        )

    async def _read(
        self, tunnel: Tunnel, messages: Messages, context: Context
    ) -> PersysError | None:
        """Reads until the agent ends the stream. Returns the error of an invalid message."""
        try:
            async for message in messages:
                await self._take(tunnel, message, context)
        except PersysError as err:
            return err
        return None

    async def _take(
        self, tunnel: Tunnel, message: control_pb2.ControlMessage, context: Context
    ) -> None:
        match message.WhichOneof("message"):
            case "heartbeat":
                tunnel.is_moving = message.moving
                if not tunnel.takes_calls:
                    # It cannot be polled, so its heartbeats are taken as complete lists.
                    message.heartbeat.complete = True
                answer = await self._owned.finish(
                    "request",
                    tunnel.node_id,
                    partial(self._nodes.Heartbeat, message.heartbeat, context),
                )
                await tunnel.outgoing.put(
                    control_pb2.ControlMessage(heartbeat_answer=answer, number=message.number)
                )
            case "reply":
                tunnel.take(message.reply)
            case "register":
                registered = await self._register(message.register)
                await tunnel.outgoing.put(control_pb2.ControlMessage(registered=registered))
            case other:
                raise InvalidError(
                    "message", f"{other or 'empty'}: expected register, heartbeat or reply"
                )


async def _write(tunnel: Tunnel, context: Context) -> None:
    while (message := await tunnel.next_message()) is not None:
        await context.write(message)
