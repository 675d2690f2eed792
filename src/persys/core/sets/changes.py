"""What users change in a set: a new record with its events, no change, or an error that says why.

A change of the template starts a rollout. The members themselves are changed by `rollout.decide`, which reads
the new record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from persys.core.placement.requirements import has_data
from persys.core.sets.checks import check_replicas, check_set
from persys.core.sets.phases import IN_PROGRESS, begun, paused, promoted, resumed
from persys.core.sets.situation import SetEvent
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.model.sets import (
    REVISIONS_MAX,
    Phase,
    Rollout,
    ScalePolicy,
    SetId,
    SetRevision,
    Template,
    UpdatePolicy,
    WorkloadSet,
)
from persys.model.spec import type_of
from persys.model.workload import Desired, Workload

PAUSED_ON_REQUEST = "paused on request"


@dataclass(frozen=True, slots=True)
class SetApply:
    """An apply request. `replicas` and `desired` None: not specified."""

    set_id: SetId
    template: Template
    replicas: int | None = None
    every_node: bool = False
    update: UpdatePolicy = field(default_factory=UpdatePolicy)
    scale: ScalePolicy | None = None
    desired: Desired | None = None


@dataclass(frozen=True, slots=True)
class SetChange:
    """What to store in one transaction: the record, a new revision, and the deletion of dropped ones."""

    record: WorkloadSet
    events: tuple[SetEvent, ...]
    revision: SetRevision | None = None
    dropped: tuple[int, ...] = ()  # numbers of revisions


@dataclass(frozen=True, slots=True)
class Unchanged:
    record: WorkloadSet


def apply(
    old: WorkloadSet | None,
    request: SetApply,
    templates: Mapping[int, Template],
    *,
    now: datetime,
    caller: str = "",
    existing: Workload | None = None,
    members_revision: int = 0,
) -> SetChange | Unchanged:
    """Create or update a set. `templates` are its stored revisions.

    Of a new set: `existing` is the workload with its id, which the set replaces; `members_revision` is the
    highest revision of members that a lost record of the set has left, which the new set adopts.
    """
    if request.desired is Desired.DELETED:
        return delete(old, request.set_id, now=now)
    if old is None:
        _refuse_unless_replaceable(request.set_id, existing)
        record = _new_record(request, existing, members_revision + 1, now)
        check_set(record, request.template)
        event = SetEvent(EventKind.SET_CREATED, f"revision {record.target}, {_size(record)}")
        return SetChange(record, (event,), _revision(record, request.template, now, caller))
    return _update(_existing(old, request.set_id), request, templates, now, caller)


def scale(
    old: WorkloadSet | None, set_id: SetId, replicas: int, *, now: datetime
) -> SetChange | Unchanged:
    record = _existing(old, set_id)
    if record.every_node:
        raise RefusedError(f"set {set_id} has one member per node and cannot be scaled")
    check_replicas(replicas, record.scale)
    if replicas == record.replicas:
        return Unchanged(record)
    event = SetEvent(EventKind.SET_SCALED, f"from {record.replicas} to {replicas} replicas")
    return SetChange(replace(record, replicas=replicas, updated_at=now), (event,))


def autoscaled(
    old: WorkloadSet, replicas: int, reason: str, *, now: datetime
) -> SetChange | Unchanged:
    """Automatic scaling changes the number of replicas, because of `reason`."""
    if replicas == old.replicas or old.desired is not Desired.RUNNING:
        return Unchanged(old)
    text = f"from {old.replicas} to {replicas} replicas: {reason}"
    record = replace(
        old, replicas=replicas, updated_at=now, scaled_at=now, scale_reason=reason[:1024]
    )
    return SetChange(record, (SetEvent(EventKind.SET_SCALED, text),))


def pause(old: WorkloadSet | None, set_id: SetId, *, now: datetime) -> SetChange | Unchanged:
    record = _existing(old, set_id)
    if record.rollout.phase is Phase.PAUSED:
        return Unchanged(record)
    if record.rollout.phase not in IN_PROGRESS:
        raise RefusedError(f"set {set_id} has no rollout in progress")
    event = SetEvent(EventKind.ROLLOUT_PAUSED, PAUSED_ON_REQUEST)
    return SetChange(paused(record, PAUSED_ON_REQUEST, now), (event,))


def resume(old: WorkloadSet | None, set_id: SetId, *, now: datetime) -> SetChange | Unchanged:
    """Continue with the phase before. Members that failed before have the full time to become healthy."""
    record = _existing(old, set_id)
    if record.rollout.phase in IN_PROGRESS:
        return Unchanged(record)
    if record.rollout.phase is not Phase.PAUSED:
        raise RefusedError(f"set {set_id} has no paused rollout")
    event = SetEvent(EventKind.ROLLOUT_RESUMED, f"to revision {record.target}")
    return SetChange(resumed(record, now), (event,))


def promote(old: WorkloadSet | None, set_id: SetId, *, now: datetime) -> SetChange:
    record = _existing(old, set_id)
    phase = record.rollout.phase
    if phase is Phase.PAUSED:
        raise RefusedError(f"the rollout of set {set_id} is paused; resume it first")
    if phase is not Phase.CANARY:
        raise RefusedError(
            f"set {set_id} does not wait for a promotion: its phase is {phase}, expected {Phase.CANARY}"
        )
    event = SetEvent(EventKind.ROLLOUT_PROMOTED, f"revision {record.target}, on request")
    return SetChange(promoted(record, now), (event,))


def undo(old: WorkloadSet | None, set_id: SetId, revision: int, *, now: datetime) -> SetChange:
    """Start a rollout to an earlier revision; 0: the stable one, or the one before the target."""
    record = _existing(old, set_id)
    number = revision or _previous(record)
    if number not in record.revisions:
        raise NotFoundError(
            "revision", f"{number} of set {set_id}, which has {_listed(record.revisions)}"
        )
    if number == record.target:
        raise RefusedError(f"revision {number} is the target of set {set_id} already")
    event = SetEvent(
        EventKind.ROLLOUT_UNDONE, f"from revision {record.target} to revision {number}"
    )
    # The user has decided: it does not wait for a promotion.
    return SetChange(_retargeted(record, number, now, skips_canary=True), (event,))


def set_desired(
    old: WorkloadSet | None, set_id: SetId, desired: Desired, *, now: datetime
) -> SetChange | Unchanged:
    if desired is Desired.DELETED:
        return delete(old, set_id, now=now)
    record = _existing(old, set_id)
    if record.desired is desired:
        return Unchanged(record)
    text = "started" if desired is Desired.RUNNING else "stopped"
    event = SetEvent(EventKind.SET_UPDATED, text)
    return SetChange(replace(record, desired=desired, updated_at=now), (event,))


def delete(old: WorkloadSet | None, set_id: SetId, *, now: datetime) -> SetChange | Unchanged:
    if old is None:
        raise NotFoundError("set", set_id)
    if old.desired is Desired.DELETED:
        return Unchanged(old)
    event = SetEvent(EventKind.SET_DELETE_ASKED, _size(old))
    return SetChange(replace(old, desired=Desired.DELETED, updated_at=now), (event,))


def _refuse_unless_replaceable(set_id: SetId, existing: Workload | None) -> None:
    if existing is None or existing.desired is Desired.DELETED:
        return
    if existing.membership is not None:
        raise RefusedError(
            f"{set_id} is a member of {existing.membership.owner}: use another id for the set"
        )
    if has_data(existing.spec):
        raise RefusedError(
            f"workload {set_id} has data, which members of a set do not take over: use another id for the"
            " set, or delete the workload first"
        )


def _new_record(
    request: SetApply, existing: Workload | None, number: int, now: datetime
) -> WorkloadSet:
    least = request.scale.min_replicas if request.scale else 1
    default = 0 if request.every_node else least
    desired = request.desired or Desired.RUNNING
    replaced = existing is not None and existing.desired is not Desired.DELETED
    return WorkloadSet(
        request.set_id,
        default if request.replicas is None else request.replicas,
        target=number,
        created_at=now,
        updated_at=now,
        every_node=request.every_node,
        update=request.update,
        scale=request.scale,
        desired=desired,
        revisions=(number,),
        rollout=begun(now) if desired is Desired.RUNNING else Rollout(),
        replaces=WorkloadId(request.set_id if replaced else ""),
    )


def _update(
    old: WorkloadSet,
    request: SetApply,
    templates: Mapping[int, Template],
    now: datetime,
    caller: str,
) -> SetChange | Unchanged:
    _refuse_other_kind(old, request, templates)
    changed = replace(
        old,
        replicas=_replicas(old, request),
        update=request.update,
        scale=request.scale,
        desired=request.desired or old.desired,
        scaled_at=old.scaled_at if request.scale else None,
        scale_reason=old.scale_reason if request.scale else "",
    )
    check_set(changed, request.template)
    number = _stored_number(old, request.template, templates)
    if number == old.target:
        if changed == old:
            return Unchanged(old)
        event = SetEvent(EventKind.SET_UPDATED, _size(changed))
        return SetChange(replace(changed, updated_at=now), (event,))
    record = _retargeted(changed, number or old.revisions[-1] + 1, now)
    events = [SetEvent(EventKind.SET_UPDATED, f"revision {record.target}, {_size(record)}")]
    if record.rollout.phase is Phase.ROLLING:
        text = f"from revision {old.target} to revision {record.target}"
        events.append(SetEvent(EventKind.ROLLOUT_STARTED, text))
    if number:
        return SetChange(record, tuple(events))
    stored = (*old.revisions, record.target)
    dropped = _surplus_revisions(stored, keep={record.target, record.stable})
    record = replace(record, revisions=tuple(n for n in stored if n not in dropped))
    revision = _revision(record, request.template, now, caller)
    return SetChange(record, tuple(events), revision, dropped)


def _refuse_other_kind(
    old: WorkloadSet, request: SetApply, templates: Mapping[int, Template]
) -> None:
    if request.every_node is not old.every_node:
        raise InvalidError(
            "every",
            f"cannot change between replicas and every: node; delete set {old.set_id} first",
        )
    for template in templates.values():
        before, after = type_of(template.spec), type_of(request.template.spec)
        if before is not after:
            raise InvalidError(
                "template.type",
                f"the type of set {old.set_id} cannot change from {before} to {after};"
                " delete the set first",
            )


def _replicas(old: WorkloadSet, request: SetApply) -> int:
    """With automatic scaling, the number in a file is only the first one: it does not reset the set."""
    if request.scale is None:
        return old.replicas if request.replicas is None else request.replicas
    if request.replicas is not None:
        check_replicas(request.replicas, request.scale)
    first = old.replicas if old.scale or request.replicas is None else request.replicas
    return min(max(first, request.scale.min_replicas), request.scale.max_replicas)


def _stored_number(
    record: WorkloadSet, template: Template, templates: Mapping[int, Template]
) -> int:
    """The number of the stored revision with this template, preferably the target; 0: none."""
    if templates.get(record.target) == template:
        return record.target
    return max(
        (number for number in record.revisions if templates.get(number) == template), default=0
    )


def _retargeted(
    record: WorkloadSet, number: int, now: datetime, *, skips_canary: bool = False
) -> WorkloadSet:
    """A new rollout, which supersedes the current one. The stable revision stays."""
    runs = record.desired is Desired.RUNNING
    rollout = begun(now, skips_canary=skips_canary) if runs else Rollout()
    return replace(record, target=number, rollout=rollout, updated_at=now)


def _surplus_revisions(numbers: tuple[int, ...], keep: set[int]) -> tuple[int, ...]:
    """The oldest ones above the limit, but never those that members may need."""
    surplus = max(0, len(numbers) - REVISIONS_MAX)
    return tuple([number for number in numbers if number not in keep][:surplus])


def _revision(record: WorkloadSet, template: Template, now: datetime, caller: str) -> SetRevision:
    return SetRevision(record.set_id, record.target, template, now, caller)


def _previous(record: WorkloadSet) -> int:
    if Phase.ROLLING_BACK in (record.rollout.phase, record.rollout.resumes_as):
        raise RefusedError(
            f"set {record.set_id} is being rolled back to revision {record.target};"
            " name a revision to undo that"
        )
    if record.stable not in (0, record.target):
        return record.stable
    before = [number for number in record.revisions if number < record.target]
    if not before:
        raise RefusedError(f"set {record.set_id} has no revision before {record.target}")
    return before[-1]


def _existing(old: WorkloadSet | None, set_id: SetId) -> WorkloadSet:
    if old is None:
        raise NotFoundError("set", set_id)
    if old.desired is Desired.DELETED:
        raise RefusedError(f"set {set_id} is being deleted; try again when it is deleted")
    return old


def _size(record: WorkloadSet) -> str:
    if record.every_node:
        return "one member per node"
    return "1 replica" if record.replicas == 1 else f"{record.replicas} replicas"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
