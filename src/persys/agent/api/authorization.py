"""Authorization of the agent's RPCs: schedulers, and admins if the settings allow them."""

from persys.agent.metrics import Metrics
from persys.agent.settings import AgentSettings
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import Door
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.wire.methods import AGENT_PERMISSIONS


def new_door(
    settings: AgentSettings, tls: Tls | None, clock: Clock, metrics: Metrics
) -> Door | None:
    """None if the agent serves without TLS, and so without authorization."""
    if tls is None or not settings.serves_tls:
        return None
    closed_to = frozenset() if settings.allow_admin else frozenset({Role.ADMIN})
    return Door(
        AGENT_PERMISSIONS,
        tls.certificates,
        clock,
        denied=lambda denial: metrics.denied(denial.role, denial.method),
        narrow=lambda caller, method, request: request,
        closed_to=closed_to,
        check=tls.check,
        tokens=None,
        is_revoked=tls.is_revoked,
        gateway_role=Role.GATEWAY,
        cn_roles=tls.cn_roles,
    )
