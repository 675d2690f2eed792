"""The index of workloads by the secrets of the built-in store that they refer to."""

from persys.core.secrets import references_of
from persys.errors import InvalidError
from persys.model.ids import WorkloadId
from persys.model.secret import StoredReference
from persys.model.spec import Spec
from persys.model.workload import Desired, Workload


class SecretReferences:
    def __init__(self) -> None:
        self._named: dict[WorkloadId, frozenset[StoredReference]] = {}
        self._users: dict[str, set[WorkloadId]] = {}

    def put(self, workload: Workload) -> None:
        """Update the references of a workload. One that is being deleted has none."""
        named: frozenset[StoredReference] = frozenset()
        if workload.desired is not Desired.DELETED:
            named = _named_by(workload.spec)
        if named == self._named.get(workload.id, frozenset()):
            return
        self.drop(workload.id)
        if named:
            self._named[workload.id] = named
        for one in named:
            self._users.setdefault(one.name, set()).add(workload.id)

    def drop(self, workload_id: WorkloadId) -> None:
        for one in self._named.pop(workload_id, frozenset()):
            users = self._users.get(one.name, set())
            users.discard(workload_id)
            if not users:
                self._users.pop(one.name, None)

    def users(self, name: str) -> list[WorkloadId]:
        return sorted(self._users.get(name, ()))

    def versions(self, name: str) -> set[int]:
        """The versions that a workload refers to."""
        return {
            one.version
            for workload_id in self._users.get(name, ())
            for one in self._named[workload_id]
            if one.name == name and one.version
        }


def _named_by(spec: Spec) -> frozenset[StoredReference]:
    try:
        found = references_of(spec).values()
    except InvalidError:
        return frozenset()  # a record from before secrets existed: it has no references
    return frozenset(one for one in found if isinstance(one, StoredReference))
