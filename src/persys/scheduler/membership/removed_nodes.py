"""Removed nodes: their certificates are refused here and revoked at persys-ca.

Otherwise a holder of the key could act as that node until the certificate expires, and renew it. Each new
leader sends the revocations again: they are idempotent, and recording them would cost a write.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

import structlog

from persys.core.nodes import is_from_before_removal
from persys.errors import DeniedError, PersysError
from persys.infra.aio.supervisor import KeyedWork
from persys.infra.tls.identity import Claims
from persys.model.identity import Role
from persys.model.ids import NodeId
from persys.model.node import RemovedNode
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

log = structlog.get_logger()

# Revokes the certificates that a node got until then. Raises PersysError if that is not possible now.
Revoke = Callable[[NodeId, datetime], Awaitable[None]]


class RemovedNodes:
    def __init__(
        self,
        cluster: ClusterState,
        revoke: Revoke | None,
        *,
        revoking: KeyedWork[NodeId],
        again: timedelta = timedelta(seconds=30),
    ) -> None:
        """`revoke` None: there is no persys-ca to call. `again`: the pause after a failed attempt."""
        self._cluster = cluster
        self._revoke = revoke
        self._revoking = revoking
        self._again = again
        self._revoked: set[RemovedNode] = set()
        self._wakeup = asyncio.Event()
        self._is_logged = False

    def check(self, claims: Claims) -> None:
        """Raises DeniedError for a certificate of a node that was removed after it was issued."""
        if claims.identity is None or claims.identity.role is not Role.AGENT or claims.shared:
            return
        name = claims.identity.name
        if is_from_before_removal(self._cluster.removed.get(NodeId(name)), claims.enrolled_at):
            text = f"node {name} was removed; enroll it again with a new token"
            raise DeniedError(text, reason="removed")

    def note(self, removal: RemovedNode) -> None:
        """The removal is stored."""
        self._cluster.removed.put(removal)
        self._wakeup.set()

    def forget(self, now: datetime) -> list[str]:
        """The keys of removals that are no longer needed, to be deleted with the next change.

        They leave memory at once, so that no two changes delete them; if the change fails, all is read again.
        """
        quarantine = self._cluster.quarantine
        old = self._cluster.removed.take_outdated(
            now, held=lambda node_id: keys.removed_key(node_id) in quarantine
        )
        return [keys.removed_key(removal.node_id) for removal in old]

    async def run(self) -> None:
        """Revoke the certificates of removed nodes, while this scheduler leads."""
        if self._revoke is None:
            return
        while True:
            self._wakeup.clear()
            all_done = await self._revoke_all(self._revoke)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if all_done else self._again.total_seconds()):
                    await self._wakeup.wait()

    async def _revoke_all(self, revoke: Revoke) -> bool:
        known = set(self._cluster.removed.values())
        self._revoked &= known
        for removal in known - self._revoked:
            if not self._revoking.is_due(removal.node_id):
                continue
            try:
                with self._revoking.contain(removal.node_id):
                    await revoke(removal.node_id, removal.removed_at)
                    self._is_logged = False
                    self._revoked.add(removal)
                    log.info("node.certificates_revoked", node_id=removal.node_id)
            except PersysError as err:
                self._log_failure(removal, str(err))
                return False
        return known <= self._revoked

    def _log_failure(self, removal: RemovedNode, why: str) -> None:
        """Log a failure once: this scheduler refuses the certificates meanwhile."""
        if not self._is_logged:
            self._is_logged = True
            log.warning("node.certificates_not_revoked", node_id=removal.node_id, reason=why)
