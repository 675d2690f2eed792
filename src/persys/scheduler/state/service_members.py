"""The members of services, by service and by workload, and a signal when one of them changes.

It is on the path of every decision: without services, a change of a workload costs one comparison.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from persys.core.services.selection import index_keys, keys_of, selector_of
from persys.model.ids import WorkloadId
from persys.model.service import Service, ServiceId
from persys.model.workload import Workload

_NONE: frozenset[WorkloadId] = frozenset()


class MemberChange(NamedTuple):
    """`workload_id` None: the service itself was changed or deleted."""

    service_id: ServiceId
    workload_id: WorkloadId | None


class ServiceMembers:
    def __init__(self, changed: Callable[[MemberChange], None]) -> None:
        """`changed` is called after a change of a service or of a member, its assignment or its status."""
        self._changed = changed
        self._services: dict[ServiceId, Service] = {}
        self._by_key: dict[tuple[str, str], set[ServiceId]] = {}
        self._members: dict[ServiceId, set[WorkloadId]] = {}
        self._services_of: dict[WorkloadId, frozenset[ServiceId]] = {}

    def of(self, service_id: ServiceId) -> AbstractSet[WorkloadId]:
        return self._members.get(service_id, _NONE)

    def put_service(self, service: Service, workloads: Iterable[Workload]) -> None:
        """`workloads`: all of the cluster."""
        service_id = service.service_id
        self._forget(service_id)
        self._services[service_id] = service
        for key in index_keys(service):
            self._by_key.setdefault(key, set()).add(service_id)
        selected = {one.id for one in workloads if selector_of(service, one) is not None}
        self._members[service_id] = selected
        for workload_id in selected:
            known = self._services_of.get(workload_id, frozenset())
            self._services_of[workload_id] = known | {service_id}
        self._changed(MemberChange(service_id, None))

    def drop_service(self, service_id: ServiceId) -> None:
        if service_id in self._services:
            self._forget(service_id)
            self._changed(MemberChange(service_id, None))

    def put(self, workload: Workload) -> None:
        """A workload is new, or its intent has changed."""
        if not self._services:
            return
        possible = {one for key in keys_of(workload) for one in self._by_key.get(key, ())}
        selected = frozenset(
            one for one in possible if selector_of(self._services[one], workload) is not None
        )
        before = self._services_of.get(workload.id, frozenset())
        for service_id in before - selected:
            self._members[service_id].discard(workload.id)
        for service_id in selected - before:
            self._members[service_id].add(workload.id)
        if selected:
            self._services_of[workload.id] = selected
        else:
            self._services_of.pop(workload.id, None)
        for service_id in before | selected:
            self._changed(MemberChange(service_id, workload.id))

    def drop(self, workload_id: WorkloadId) -> None:
        for service_id in self._services_of.pop(workload_id, ()):
            self._members[service_id].discard(workload_id)
            self._changed(MemberChange(service_id, workload_id))

    def note(self, workload_id: WorkloadId) -> None:
        """Its assignment, its status or the record of its node has changed."""
        if not self._services:
            return
        for service_id in self._services_of.get(workload_id, ()):
            self._changed(MemberChange(service_id, workload_id))

    def _forget(self, service_id: ServiceId) -> None:
        service = self._services.pop(service_id, None)
        if service is None:
            return
        for key in index_keys(service):
            found = self._by_key.get(key, set())
            found.discard(service_id)
            if not found:
                self._by_key.pop(key, None)
        for workload_id in self._members.pop(service_id):
            if rest := self._services_of[workload_id] - {service_id}:
                self._services_of[workload_id] = rest
            else:
                del self._services_of[workload_id]
