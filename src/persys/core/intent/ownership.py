"""Ownership of workloads: which owner changes a member, and which ids are taken.

Only its set or its run changes a member. Workloads, sets and jobs do not share ids, except while a set
replaces the workload with its id. If the record of the owner is lost, its former members may be changed like
plain workloads.
"""

from collections.abc import Container
from dataclasses import dataclass

from persys.errors import RefusedError
from persys.model.workload import Desired, Membership, Workload


@dataclass(frozen=True, slots=True)
class Owners:
    """The ids of sets and of jobs, and runs as `<job>/<run>`."""

    sets: Container[str]
    jobs: Container[str]
    runs: Container[str]

    def owns(self, workload: Workload) -> bool:
        """Whether the record of its owner exists. A membership from a report of a node may be false."""
        membership = workload.membership
        if membership is None or workload.id != f"{membership.owner}-{membership.number}":
            return False
        if membership.job_id:
            return f"{membership.job_id}/{membership.owner}" in self.runs
        return membership.owner in self.sets


def check_change(old: Workload | None, new: Workload, owners: Owners) -> None:
    """Raises RefusedError if the change is not from the owner of the workload.

    A retry changes nothing, and is allowed for a member of a set. A member of a run is executed again only by
    the retries of its job.
    """
    if new is old and not new.runs_once:
        return
    if old is not None and old.membership is not None and owners.owns(old):
        raise RefusedError(_member_text(old, old.membership))
    if new is old:
        return
    if new.desired is not Desired.DELETED:
        check_id(new.id, owners)


def check_id(workload_id: str, owners: Owners) -> None:
    """Raises RefusedError if a plain workload must not have this id."""
    if workload_id in owners.sets:
        raise RefusedError(
            f"{workload_id} is a set: use replicas in its file, or delete the set first"
        )
    if workload_id in owners.jobs:
        raise RefusedError(f"{workload_id} is a job: delete the job first")


def _member_text(workload: Workload, membership: Membership) -> str:
    if membership.job_id:
        return (
            f"workload {workload.id} is a member of run {membership.owner} of job {membership.job_id}: "
            "change the job, cancel the run or start another one"
        )
    return f"workload {workload.id} is a member of set {membership.owner}: change the set"
