"""Applies a user's request to a workload: a new intent, no change, or an error that says why."""

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from persys.core.numbers import whole_number
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.model.event import EventKind
from persys.model.ids import Revision, WorkloadId
from persys.model.placement import NO_RULES, Resources, Rules
from persys.model.spec import Spec, type_of
from persys.model.workload import Desired, Workload

# Leaves space for the counter within the length limit of a revision.
_BASE_LENGTH_MAX = 100


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """An apply request. `desired` None: not specified."""

    workload_id: WorkloadId
    desired: Desired | None
    spec: Spec
    resources: Resources
    metadata: dict[str, str]
    revision: Revision
    revision_is_given: bool
    rules: Rules = NO_RULES
    stop_after_seconds: int = 0
    networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    workload: Workload
    event: EventKind


@dataclass(frozen=True, slots=True)
class Unchanged:
    workload: Workload


def apply(old: Workload | None, request: ApplyRequest, *, now: datetime) -> Accepted | Unchanged:
    if old is None:
        if request.desired is Desired.DELETED:
            raise NotFoundError("workload", request.workload_id)
        return Accepted(_new(request, now), EventKind.WORKLOAD_CREATED)
    if request.desired is Desired.DELETED:
        return change_desired(old, request.workload_id, Desired.DELETED, now=now)
    _refuse_if_deleting(old)
    if type_of(old.spec) is not type_of(request.spec):
        raise InvalidError(
            "spec.type",
            f"the type of {old.id} cannot change from {type_of(old.spec)} to {type_of(request.spec)}; "
            "delete the workload first",
        )
    desired = request.desired or old.desired
    same_content = (
        old.spec,
        old.resources,
        old.metadata,
        old.stop_after_seconds,
        old.networks,
    ) == (
        request.spec,
        request.resources,
        request.metadata,
        request.stop_after_seconds,
        request.networks,
    )
    if old.revision == request.revision and not same_content and request.revision_is_given:
        raise InvalidError(
            "revision_id",
            f"'{request.revision}' is already used for another spec of {old.id}; expected a new revision",
        )
    # Only an explicit revision can rename the same content.
    revision = old.revision if same_content and not request.revision_is_given else request.revision
    if old.revision == revision and old.desired is desired and old.rules == request.rules:
        return Unchanged(old)
    changed = replace(
        old,
        spec=request.spec,
        resources=request.resources,
        metadata=request.metadata,
        rules=request.rules,
        stop_after_seconds=request.stop_after_seconds,
        networks=request.networks,
        revision=revision,
        desired=desired,
        updated_at=now,
        stopped_because=old.stopped_because if desired is Desired.STOPPED else "",
    )
    return Accepted(changed, EventKind.WORKLOAD_UPDATED)


def change_desired(
    old: Workload | None, workload_id: WorkloadId, desired: Desired, *, now: datetime
) -> Accepted | Unchanged:
    if old is None:
        raise NotFoundError("workload", workload_id)
    if old.desired is desired:
        return Unchanged(old)
    _refuse_if_deleting(old)
    event = {
        Desired.RUNNING: EventKind.WORKLOAD_START_ASKED,
        Desired.STOPPED: EventKind.WORKLOAD_STOP_ASKED,
        Desired.DELETED: EventKind.WORKLOAD_DELETE_ASKED,
    }[desired]
    return Accepted(replace(old, desired=desired, updated_at=now, stopped_because=""), event)


def stop_because(old: Workload, why: str, *, now: datetime) -> Accepted | Unchanged:
    """The scheduler itself stops a running workload."""
    if old.desired is not Desired.RUNNING:
        return Unchanged(old)
    stopped = replace(old, desired=Desired.STOPPED, updated_at=now, stopped_because=why)
    return Accepted(stopped, EventKind.WORKLOAD_STOP_ASKED)


def retry(old: Workload | None, workload_id: WorkloadId) -> Accepted:
    """Reset past failures and try again now."""
    if old is None:
        raise NotFoundError("workload", workload_id)
    return Accepted(old, EventKind.WORKLOAD_RETRY_ASKED)


def redeploy(old: Workload | None, workload_id: WorkloadId, *, now: datetime) -> Accepted:
    """The same spec with a new revision, to use the current commit of its branch or image of its tag."""
    if old is None:
        raise NotFoundError("workload", workload_id)
    _refuse_if_deleting(old)
    again = replace(
        old,
        revision=_next(old.revision),
        desired=Desired.RUNNING,
        updated_at=now,
        stopped_because="",
    )
    return Accepted(again, EventKind.WORKLOAD_REDEPLOY_ASKED)


def _next(revision: Revision) -> Revision:
    """abc, abc+2, abc+3, …"""
    base, plus, count = revision.rpartition("+")
    number = whole_number(count)
    if plus and base and number is not None:
        return Revision(f"{base}+{number + 1}")
    return Revision(f"{revision[:_BASE_LENGTH_MAX]}+2")


def _new(request: ApplyRequest, now: datetime) -> Workload:
    return Workload(
        id=request.workload_id,
        spec=request.spec,
        revision=request.revision,
        created_at=now,
        updated_at=now,
        desired=request.desired or Desired.RUNNING,
        resources=request.resources,
        metadata=request.metadata,
        rules=request.rules,
        stop_after_seconds=request.stop_after_seconds,
        networks=request.networks,
    )


def _refuse_if_deleting(old: Workload) -> None:
    if old.desired is Desired.DELETED:
        raise RefusedError(f"workload {old.id} is being deleted; try again when it is deleted")
