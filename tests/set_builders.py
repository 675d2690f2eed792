"""Builders of sets for tests."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace as replace_record

from persys.core.sets.changes import SetApply, SetChange, Unchanged
from persys.core.sets.members import member_id
from persys.core.sets.rollout import decide
from persys.core.sets.situation import MemberHealth, MemberState, SetDecision, SetSituation
from persys.model.ids import NodeId, Revision
from persys.model.placement import Resources
from persys.model.sets import Phase, Rollout, SetId, Template, UpdatePolicy, WorkloadSet
from persys.model.spec import ContainerSpec, ManagedVolume, Spec
from persys.model.workload import Desired

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
WEB = SetId("web")
VOLUME = ManagedVolume("data", mount_path="/data")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_template(image: str = "nginx:1", *, spec: Spec | None = None, data: bool = False) -> Template:
    """With `data`, its members are updated in place."""
    volumes = (VOLUME,) if data else ()
    return Template(
        spec or ContainerSpec(image, managed_volumes=volumes),
        Revision(f"r-{image}"),
        Resources(500, 256),
    )


def a_set(
    replicas: int = 3,
    *,
    phase: Phase = Phase.STEADY,
    target: int = 1,
    stable: int = 1,
    rollout: Rollout | None = None,
    update: UpdatePolicy | None = None,
    **changes: object,
) -> WorkloadSet:
    """A steady set with revision 1; with a phase, its rollout has started 60 seconds ago."""
    started_at = None if phase is Phase.STEADY else at(-60)
    record = WorkloadSet(
        WEB,
        replicas,
        target,
        created_at=at(-3600),
        updated_at=at(-60),
        stable=stable,
        revisions=tuple(sorted({1, target, stable} - {0})),
        update=update or UpdatePolicy(),
        rollout=rollout or Rollout(phase, started_at=started_at, progressed_at=started_at),
    )
    return replace_record(record, **changes)


def a_member(
    number: int,
    health: MemberHealth = MemberHealth.HEALTHY,
    *,
    index: int | None = None,
    revision: int = 1,
    since: float = -1800,
    changed: float | None = None,
    **changes: object,
) -> MemberState:
    """Healthy or waiting since so many seconds after NOW; its index is its number."""
    is_healthy = health is MemberHealth.HEALTHY
    is_deleting = health is MemberHealth.DELETING
    member = MemberState(
        member_id(WEB, number),
        number,
        number if index is None else index,
        revision,
        Desired.DELETED if is_deleting else Desired.RUNNING,
        health,
        waiting_since=NOW if is_healthy else at(since),
        changed_at=at(since if changed is None else changed),
        healthy_since=at(since) if is_healthy else None,
        node_id=NodeId(f"n{number}"),
    )
    return replace(member, **changes)  # type: ignore[arg-type]  # names and types are those of the fields


def members_of(count: int, *, revision: int = 1) -> tuple[MemberState, ...]:
    return tuple(a_member(number, revision=revision) for number in range(count))


def a_situation(
    record: WorkloadSet | None = None,
    members: Iterable[MemberState] = (),
    *,
    templates: Mapping[int, Template] | None = None,
    data: bool = False,
    **changes: object,
) -> SetSituation:
    record = record or a_set()
    known = {number: a_template(f"nginx:{number}", data=data) for number in record.revisions}
    situation = SetSituation(record, templates or known, tuple(members))
    return replace(situation, **changes)  # type: ignore[arg-type]  # as above


def decision_of(
    record: WorkloadSet | None = None,
    members: Iterable[MemberState] = (),
    *,
    templates: Mapping[int, Template] | None = None,
    data: bool = False,
    **changes: object,
) -> SetDecision:
    situation = a_situation(record, members, templates=templates, data=data, **changes)
    return decide(situation, NOW)


def an_apply(template: Template | None = None, **changes: object) -> SetApply:
    request = SetApply(WEB, template or a_template())
    return replace(request, **changes)  # type: ignore[arg-type]  # as above


def record_of(change: SetChange | Unchanged) -> WorkloadSet:
    assert isinstance(change, SetChange)
    return change.record
