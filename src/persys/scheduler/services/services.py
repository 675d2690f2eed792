"""Services as users change them. A change is one commit of one record with its event."""

from collections.abc import Callable

from persys.core.dns_names import Zone
from persys.core.services import checks
from persys.core.services.checks import Outcome, ServiceChange
from persys.errors import NotFoundError, RefusedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.service import Service
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

SERVICES_MAX = 1_000


class Services:
    def __init__(
        self, cluster: ClusterState, committer: Committer, clock: Clock, *, zone: Callable[[], Zone]
    ) -> None:
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._zone = zone
        self._locks: KeyedLock[str] = KeyedLock()

    def get(self, service_id: str) -> Service:
        service = self._cluster.services.get(service_id)
        if service is None:
            raise NotFoundError("service", service_id)
        return service

    def all(self) -> list[Service]:
        return [service for _, service in sorted(self._cluster.services.items())]

    async def apply(self, wanted: Service) -> ServiceChange:
        """Create or update a service. Raises InvalidError, and RefusedError if there are too many."""
        checks.check_service(wanted)
        checks.check_names(wanted, self._zone())

        async def attempt() -> ServiceChange:
            old = self._cluster.services.get(wanted.service_id)
            if old is None and len(self._cluster.services) >= SERVICES_MAX:
                raise RefusedError(
                    f"{SERVICES_MAX} services exist: expected at most {SERVICES_MAX}"
                )
            change = checks.apply(old, wanted, now=self._clock.now())
            if change.outcome is not Outcome.UNCHANGED:
                assert change.event is not None, "a change has an event"
                await self._commit(change.service, change.event)
            return change

        async with self._locks.hold(wanted.service_id):
            return await retry_on_conflict(attempt)

    async def delete(self, service_id: str) -> Service:
        """Its members continue to run."""

        async def attempt() -> Service:
            service = self.get(service_id)
            await self._committer.commit(
                Transaction(
                    done=lambda: self._cluster.drop_service(service_id),
                    drops=[keys.service_key(service_id)],
                    events=[self._event(EventKind.SERVICE_DELETED, service_id)],
                )
            )
            return service

        async with self._locks.hold(service_id):
            return await retry_on_conflict(attempt)

    async def _commit(self, service: Service, kind: EventKind) -> None:
        await self._committer.commit(
            Transaction(
                done=lambda: self._cluster.put_service(service),
                puts={keys.service_key(service.service_id): service},
                events=[self._event(kind, service.service_id)],
            )
        )

    def _event(self, kind: EventKind, service_id: str) -> Event:
        return Event(self._clock.now(), kind, f"service {service_id}")
