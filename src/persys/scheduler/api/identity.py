"""The identity and permissions of the caller."""

from persys.infra.rpc.authorizer import CALLER
from persys.scheduler.api.service import Context
from persys.wire.control import messages as control_messages
from persys.wire.gen.control.v1 import control_pb2


class IdentityApi:
    async def GetIdentity(
        self, request: control_pb2.GetIdentityRequest, context: Context
    ) -> control_pb2.IdentityView:
        caller = CALLER.get()
        if caller is None:
            return control_pb2.IdentityView()
        return control_pb2.IdentityView(
            role=caller.identity.role,
            name=caller.identity.name,
            deeds=sorted(caller.deeds),
            expires_at=control_messages.timestamp(caller.expires_at),
            serial=caller.serial,
            token_id=caller.token_id,
        )
