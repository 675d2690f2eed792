"""Shares equal parts of records that are loaded together, so that memory has one copy of each.

Decoding makes new objects for every record, but most are equal to others: the id of a workload is in three
records and several events, hundreds of workloads on a node have its id, and all members of a set have the
same spec, resources and rules. Records are frozen, so nothing changes a shared part.
"""

from msgspec import Struct
from msgspec.structs import force_setattr

from persys.model.event import Event
from persys.model.ids import Revision
from persys.model.placement import Assignment
from persys.model.spec import Spec
from persys.model.status import WorkloadStatus
from persys.model.workload import Workload

# The fields of numerous records that are hashable and often equal.
_FIELDS: dict[type[Struct], tuple[str, ...]] = {
    Workload: ("id", "revision", "resources", "rules"),
    Assignment: ("workload_id", "node_id", "reserved", "host_ports", "why", "rules"),
    WorkloadStatus: ("workload_id", "revision", "message"),
    Event: ("workload_id", "node_id", "revision", "message", "identity", "source"),
}


class SharedParts:
    """The parts of one load. It is dropped afterwards, so it keeps nothing in memory."""

    def __init__(self) -> None:
        self._parts: dict[object, object] = {}
        self._specs: dict[Revision, Spec] = {}

    def share(self, record: Struct) -> None:
        """Replace parts of a new record by equal parts of earlier ones."""
        parts = self._parts
        for name in _FIELDS.get(type(record), ()):
            part = getattr(record, name)
            known = parts.setdefault(part, part)
            # Equal values of different types, such as 1 and True, are not the same part.
            if known is not part and type(known) is type(part):
                force_setattr(record, name, known)
        if isinstance(record, Workload):
            self._share_spec(record)

    def _share_spec(self, workload: Workload) -> None:
        """Specs are not hashable; the revision is a hash of the spec and more."""
        known = self._specs.setdefault(workload.revision, workload.spec)
        if known is not workload.spec and known == workload.spec:
            force_setattr(workload, "spec", known)
