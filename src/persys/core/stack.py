"""How a stack is, from how its containers are: one artefact, which tells of the container that matters most.

A service whose restart policy lets it end, and which ended with 0, is done. One that ended otherwise has
failed. What ended although it should always run was stopped by somebody, and is started again.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from persys.core.convergence import Artefact, Condition
from persys.core.health import Health
from persys.model.ids import Revision
from persys.model.spec import RestartPolicy

_ENDED = RestartPolicy("no")


class ServicePlan(Struct, frozen=True):
    """What the Compose file says of a service."""

    restart: RestartPolicy = RestartPolicy("no")
    replicas: int = 1


class Member(Struct, frozen=True):
    """One container of a stack, and how Docker itself restarts it."""

    service: str
    artefact: Artefact
    restart: RestartPolicy


class _Case(IntEnum):
    """In the order in which they matter."""

    ABSENT = 0
    PAUSED = 1
    STOPPED = 2
    RESTARTING = 3
    FAILED = 4
    RUNNING = 5
    DONE = 6


_CONDITIONS = {
    _Case.ABSENT: Condition.CREATED,
    _Case.PAUSED: Condition.PAUSED,
    _Case.STOPPED: Condition.EXITED,
    _Case.RESTARTING: Condition.RESTARTING,
    _Case.FAILED: Condition.EXITED,
    _Case.RUNNING: Condition.RUNNING,
    _Case.DONE: Condition.EXITED,
}
_HEALTH = (Health.UNHEALTHY, Health.STARTING, Health.HEALTHY)


def artefact_of(
    project: str,
    members: Iterable[Member],
    plans: Mapping[str, ServicePlan],
    *,
    revision: Revision,
    commit: str = "",
) -> Artefact | None:
    """None: there is no container. `plans` is empty if nobody knows what there should be."""
    there = sorted(members, key=lambda member: (member.service, member.artefact.name))
    if not there:
        return None
    cases = [(_case(member, plans), member) for member in there]
    missing = _missing(there, plans)
    deciding, member = min(cases, key=lambda case: (case[0], -case[1].artefact.restart_count))
    case = _Case.ABSENT if missing else deciding
    told = member.artefact
    worst = _sickest(there)
    return replace(
        told,
        name=project,
        condition=_CONDITIONS[case],
        revision=revision,
        started_at=told.started_at if case in _OF_ONE else _last_start(there),
        ports=tuple(sorted({port for one in there for port in one.artefact.ports})),
        health=worst.artefact.health if worst is not None else None,
        ailment=f"{worst.service}: {worst.artefact.ailment}".rstrip(": ") if worst else "",
        part=member.service,
        parts=tuple(_words(cases, missing)),
        others_active=any(one.artefact.condition.active for one in there),
        restart=_restart(case, member, plans),
        commit=commit,
        deviations=tuple(found for one in there for found in one.artefact.deviations),
    )


_OF_ONE = (_Case.RESTARTING, _Case.FAILED, _Case.STOPPED)


def to_start(members: Iterable[Member], plans: Mapping[str, ServicePlan]) -> list[Member] | None:
    """Those that were stopped while the others run. None: the whole stack is to be brought up."""
    there = list(members)
    if _missing(there, plans) or not any(one.artefact.condition.active for one in there):
        return None
    cases = [(_case(member, plans), member) for member in there]
    if any(case is _Case.ABSENT for case, _ in cases):
        return None
    return [member for case, member in cases if case in (_Case.STOPPED, _Case.FAILED)]


def speaks_for(members: Iterable[Member], plans: Mapping[str, ServicePlan]) -> Member | None:
    """Whose log tells why the stack is not well: what failed, or else what matters most."""
    first = (_Case.FAILED, _Case.RESTARTING)
    return min(
        members,
        key=lambda member: (_case(member, plans) not in first, _case(member, plans)),
        default=None,
    )


def _case(member: Member, plans: Mapping[str, ServicePlan]) -> _Case:
    seen = member.artefact
    match seen.condition:
        case Condition.RUNNING:
            return _Case.RUNNING
        case Condition.PAUSED:
            return _Case.PAUSED
        case Condition.RESTARTING:
            return _Case.RESTARTING
        case Condition.EXITED:
            if not _policy(member, plans).runs_to_completion:
                return _Case.STOPPED
            ended_well = seen.exit_code == 0 and not seen.oom_killed
            return _Case.DONE if ended_well else _Case.FAILED
        case _:
            return _Case.ABSENT


def _policy(member: Member, plans: Mapping[str, ServicePlan]) -> RestartPolicy:
    return plans[member.service].restart if member.service in plans else member.restart


def _restart(case: _Case, member: Member, plans: Mapping[str, ServicePlan]) -> RestartPolicy:
    policy = _policy(member, plans)
    if case is _Case.FAILED and member.restart.name != "no":
        return _ENDED  # Docker has tried as often as it should
    return policy if case in (_Case.STOPPED, _Case.FAILED) else _ENDED


def _missing(members: list[Member], plans: Mapping[str, ServicePlan]) -> list[str]:
    counts = dict.fromkeys(plans, 0)
    for member in members:
        counts[member.service] = counts.get(member.service, 0) + 1
    return [name for name, plan in plans.items() if counts[name] < plan.replicas]


def _last_start(members: list[Member]) -> datetime | None:
    return max(
        (one.artefact.started_at for one in members if one.artefact.started_at), default=None
    )


def _sickest(members: list[Member]) -> Member | None:
    checked = [one for one in members if one.artefact.health is not None]
    running = [one for one in checked if one.artefact.condition is Condition.RUNNING]
    return min(running, key=_health_rank, default=None)


def _health_rank(member: Member) -> int:
    assert member.artefact.health is not None, "only those that are checked are ranked"
    return _HEALTH.index(member.artefact.health)


def _words(cases: list[tuple[_Case, Member]], missing: list[str]) -> list[str]:
    """One word for each service: that of its copy that matters most."""
    words = dict.fromkeys(missing, (_Case.ABSENT, "missing"))
    for case, member in cases:
        word = (case, _word(case, member.artefact))
        words[member.service] = min(words.get(member.service, word), word)
    return [f"{service}={word}" for service, (_, word) in sorted(words.items())]


def _word(case: _Case, seen: Artefact) -> str:
    match case:
        case _Case.DONE:
            return "completed"
        case _Case.STOPPED | _Case.FAILED:
            return f"exited({seen.exit_code})"
        case _Case.RUNNING if seen.health is Health.UNHEALTHY:
            return "unhealthy"
        case _:
            return seen.condition.value
