"""What somebody may do who asks the gateway itself: only a scheduler can tell whether a token is good."""

from aiohttp import web

from persys.errors import DeniedError
from persys.gateway.door import Ask, Handler
from persys.gateway.identity import ANYONE
from persys.model.identity import Deed
from persys.wire.gen.control.v1 import control_pb2 as pb


def needing(deed: Deed, handler: Handler) -> Handler:
    """For what no scheduler is asked for, which would otherwise judge."""

    async def handle(ask: Ask) -> web.StreamResponse:
        await _prove(ask, deed)
        return await handler(ask)

    return handle


async def _prove(ask: Ask, deed: Deed) -> None:
    """Raises DeniedError, AioRpcError."""
    who = ask.who
    if who is ANYONE:
        return  # -insecure
    deeds = who.deeds
    if deeds is None:
        answered = await ask.cluster.call(
            "GetIdentity", pb.GetIdentityRequest(), key="", metadata=ask.metadata, again=True
        )
        view: pb.IdentityView = answered.answer
        if not view.role:
            return  # the scheduler is insecure
        deeds = frozenset(Deed(word) for word in view.deeds if word in list(Deed))
    if deed not in deeds:
        raise DeniedError(f"{who.name} may not do this", reason="role")
