"""Authorization of the scheduler's RPCs. An agent may act only for its own node, a prefix token only for
names with its prefix.

An agent whose certificate name is shared by several nodes passes this check: registration and heartbeats
check which node belongs to which host.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

from persys.core.auth.denials import Denial
from persys.errors import DeniedError
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import Authorizer, Check
from persys.infra.rpc.bearer import FindToken
from persys.infra.tls.tls import Tls
from persys.model.identity import Caller, Role
from persys.scheduler.auth.prefix_scope import check_request
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.methods import CONTROL_PERMISSIONS


def build_authorizer(
    tls: Tls | None,
    clock: Clock,
    *,
    denied: Callable[[Denial], None],
    tokens: FindToken,
    check: Check,
    gateway_role: Role,
) -> Authorizer | None:
    """None on -insecure."""
    if tls is None:
        return None
    return Authorizer(
        CONTROL_PERMISSIONS,
        tls.certificates,
        clock,
        denied=denied,
        narrow=narrow,
        refused_roles=frozenset(),
        check=check,
        tokens=tokens,
        is_revoked=tls.is_revoked,
        gateway_role=gateway_role,
        cn_roles=tls.cn_roles,
    )


def narrow(caller: Caller, method: str, request: Any) -> Any:
    """Restrict a request to what its caller may access. Raises DeniedError."""
    return check_request(caller, method, check_acts_for_own_node(caller, method, request))


def check_acts_for_own_node(caller: Caller, method: str, request: Any) -> Any:
    if caller.identity.role is not Role.AGENT:
        return request
    if method == "ControlStream":
        return _watched(caller, request)
    _check(caller, getattr(request, "node_id", caller.identity.name))
    return request


async def _watched(
    caller: Caller, messages: AsyncIterator[control_pb2.ControlMessage]
) -> AsyncIterator[control_pb2.ControlMessage]:
    async for message in messages:
        match message.WhichOneof("message"):
            case "register":
                _check(caller, message.register.node_id)
            case "heartbeat":
                _check(caller, message.heartbeat.node_id)
        yield message


def _check(caller: Caller, node_id: str) -> None:
    if node_id != caller.identity.name and not caller.shared:
        text = f"{caller.identity} may not act for node {node_id!r}"
        raise DeniedError(text, reason="node")
