"""Writes an event for each node whose certificate expires soon, while it can still be renewed.

A node presents its certificate when it connects, and reconnects after each renewal; so a certificate in the
last tenth of its validity was not renewed. A standby forwards the certificate that a node presented to it.
"""

from datetime import datetime

import structlog

from persys.core.auth.certificate_renewal import Freshness, freshness
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import CLIENT_CLAIMS
from persys.infra.tls.identity import Claims
from persys.model.event import Event, EventKind
from persys.model.identity import Identity, Role
from persys.model.ids import NodeId
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction

log = structlog.get_logger()


class CertificateExpiry:
    def __init__(self, committer: Committer, clock: Clock) -> None:
        self._committer = committer
        self._clock = clock
        self._reported: dict[NodeId, str] = {}  # the serial that was reported

    async def check(self, node_id: NodeId) -> None:
        """A heartbeat of a node, direct or forwarded by a standby."""
        claims = CLIENT_CLAIMS.get()
        if claims is None or claims.identity != Identity(Role.AGENT, node_id):
            return
        now = self._clock.now()
        if freshness(claims.not_before, claims.not_after, now) in (Freshness.FRESH, Freshness.DUE):
            self._reported.pop(node_id, None)
        elif self._reported.get(node_id) != claims.serial:
            self._reported[node_id] = claims.serial
            await self._write_event(node_id, claims, now)

    async def _write_event(self, node_id: NodeId, claims: Claims, now: datetime) -> None:
        text = (
            f"its certificate was not renewed and expires at {claims.not_after:%Y-%m-%d %H:%M:%S} UTC; "
            "after that the node must enroll again with a token"
        )
        log.warning("node.certificate_expires", node_id=node_id, expires_at=claims.not_after)
        event = Event(now, EventKind.NODE_CERTIFICATE_EXPIRES, text, node_id=node_id)
        try:
            await self._committer.commit(Transaction(done=lambda: None, events=[event]))
        except (StoreUnavailableError, ConflictError):
            self._reported.pop(node_id)  # retried at its next heartbeat
