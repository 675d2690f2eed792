"""The state of a Compose stack from its containers: one artefact, of the most significant container.

A service whose restart policy lets it exit, and which exited with 0, is done. With another exit code it has
failed. A service that exited although it should always run was stopped manually, and is started again.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from persys.core.agent.health import Health
from persys.core.agent.progress import Artefact, Condition
from persys.model.ids import Revision
from persys.model.spec import RestartPolicy

_ENDED = RestartPolicy("no")


class ServicePlan(Struct, frozen=True):
    """The part of a service in the Compose file that decides its state."""

    restart: RestartPolicy = RestartPolicy("no")
    replicas: int = 1


class ServiceContainer(Struct, frozen=True):
    """One container of a stack, with the restart policy that Docker applies to it."""

    service: str
    artefact: Artefact
    restart: RestartPolicy


class _Case(IntEnum):
    """In order of significance."""

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
    members: Iterable[ServiceContainer],
    plans: Mapping[str, ServicePlan],
    *,
    revision: Revision,
    commit: str = "",
) -> Artefact | None:
    """None: there is no container. `plans` is empty if the Compose file is unknown."""
    there = sorted(members, key=lambda member: (member.service, member.artefact.name))
    if not there:
        return None
    cases = [(_case(member, plans), member) for member in there]
    missing = _missing(there, plans)
    deciding, member = min(cases, key=lambda case: (case[0], -case[1].artefact.restart_count))
    case = _Case.ABSENT if missing else deciding
    shown = member.artefact
    worst = _least_healthy(there)
    return replace(
        shown,
        name=project,
        condition=_CONDITIONS[case],
        revision=revision,
        started_at=shown.started_at if case in _OF_ONE else _last_start(there),
        ports=tuple(sorted({port for one in there for port in one.artefact.ports})),
        health=worst.artefact.health if worst is not None else None,
        health_error=f"{worst.service}: {worst.artefact.health_error}".rstrip(": ")
        if worst
        else "",
        part=member.service,
        parts=tuple(_words(cases, missing)),
        others_active=any(one.artefact.condition.active for one in there),
        runs=tuple(run for one in there if (run := one.artefact.run) is not None),
        restart=_restart(case, member, plans),
        commit=commit,
        deviations=tuple(found for one in there for found in one.artefact.deviations),
    )


_OF_ONE = (_Case.RESTARTING, _Case.FAILED, _Case.STOPPED)


def to_start(
    members: Iterable[ServiceContainer], plans: Mapping[str, ServicePlan]
) -> list[ServiceContainer] | None:
    """The containers that are stopped while others run. None: the whole stack has to be started."""
    there = list(members)
    if _missing(there, plans) or not any(one.artefact.condition.active for one in there):
        return None
    cases = [(_case(member, plans), member) for member in there]
    if any(case is _Case.ABSENT for case, _ in cases):
        return None
    return [member for case, member in cases if case in (_Case.STOPPED, _Case.FAILED)]


def log_source(
    members: Iterable[ServiceContainer], plans: Mapping[str, ServicePlan]
) -> ServiceContainer | None:
    """The container whose log explains the state of the stack: a failed one, or the most significant."""
    first = (_Case.FAILED, _Case.RESTARTING)
    return min(
        members,
        key=lambda member: (_case(member, plans) not in first, _case(member, plans)),
        default=None,
    )


def _case(member: ServiceContainer, plans: Mapping[str, ServicePlan]) -> _Case:
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


def _policy(member: ServiceContainer, plans: Mapping[str, ServicePlan]) -> RestartPolicy:
    return plans[member.service].restart if member.service in plans else member.restart


def _restart(
    case: _Case, member: ServiceContainer, plans: Mapping[str, ServicePlan]
) -> RestartPolicy:
    policy = _policy(member, plans)
    if case is _Case.FAILED and member.restart.name != "no":
        return _ENDED  # Docker has used up the retries
    return policy if case in (_Case.STOPPED, _Case.FAILED) else _ENDED


def _missing(members: list[ServiceContainer], plans: Mapping[str, ServicePlan]) -> list[str]:
    counts = dict.fromkeys(plans, 0)
    for member in members:
        counts[member.service] = counts.get(member.service, 0) + 1
    return [name for name, plan in plans.items() if counts[name] < plan.replicas]


def _last_start(members: list[ServiceContainer]) -> datetime | None:
    return max(
        (one.artefact.started_at for one in members if one.artefact.started_at), default=None
    )


def _least_healthy(members: list[ServiceContainer]) -> ServiceContainer | None:
    checked = [one for one in members if one.artefact.health is not None]
    running = [one for one in checked if one.artefact.condition is Condition.RUNNING]
    return min(running, key=_health_rank, default=None)


def _health_rank(member: ServiceContainer) -> int:
    assert member.artefact.health is not None, "only those that are checked are ranked"
    return _HEALTH.index(member.artefact.health)


def _words(cases: list[tuple[_Case, ServiceContainer]], missing: list[str]) -> list[str]:
    """One word per service: the state of its most significant container."""
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
        case _Case.RUNNING if seen.health in (Health.UNHEALTHY, Health.STARTING):
            return seen.health.value  # starting: its health check has not passed yet
        case _:
            return seen.condition.value
