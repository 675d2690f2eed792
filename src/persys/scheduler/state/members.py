"""The members of sets and of runs, by their owner, and a signal when one of them changes.

It is on the path of every decision: a workload that is not a member costs one comparison.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from persys.core.sets.members import member_id
from persys.model.ids import WorkloadId
from persys.model.workload import Membership, Workload

_NONE: frozenset[WorkloadId] = frozenset()


def owner_key(membership: Membership) -> str:
    """The id of a set, or `<job>/<run>`, as memory holds runs."""
    if membership.job_id:
        return f"{membership.job_id}/{membership.owner}"
    return membership.owner


def is_member(workload: Workload, set_id: str) -> bool:
    """Whether the set owns it. Its membership may be from a report of a node."""
    membership = workload.membership
    return (
        membership is not None
        and not membership.job_id
        and membership.owner == set_id
        and min(membership.index, membership.number) >= 0
        and workload.id == member_id(set_id, membership.number)
    )


class Members:
    def __init__(self, changed: Callable[[Workload], None]) -> None:
        """`changed` is called after a change of a member, of its assignment, its status or its retry."""
        self._changed = changed
        self._by_owner: dict[str, set[WorkloadId]] = {}

    def of(self, owner: str) -> AbstractSet[WorkloadId]:
        """`owner`: as in `owner_key`."""
        return self._by_owner.get(owner, _NONE)

    def put(self, old: Workload | None, new: Workload) -> None:
        if old is not None and old.membership is not new.membership:
            self.drop(old)
        if new.membership is not None:
            self._by_owner.setdefault(owner_key(new.membership), set()).add(new.id)
            self._changed(new)

    def drop(self, old: Workload) -> None:
        if old.membership is None:
            return
        key = owner_key(old.membership)
        listed = self._by_owner.get(key, set())
        listed.discard(old.id)
        if not listed:
            self._by_owner.pop(key, None)
        self._changed(old)

    def note(self, workload: Workload) -> None:
        """Its assignment, its status or its retry has changed."""
        if workload.membership is not None:
            self._changed(workload)
