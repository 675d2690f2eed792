"""What a decision of the agent reads and returns: the artefact of the runtime, the progress of the order in
the journal, and the outcome. `next_step.py` decides.

The progress counts the restarts since the revision was created. Docker counts the automatic restarts of one
container, from 0 after each other start: by the agent, by a person, or after a restart of Docker. libvirt
counts nothing. The time of the last start shows such a start. A restart that no inspection has seen is
therefore counted too.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, field

from persys.core.agent.deviations import Deviation, Repairs
from persys.core.agent.health import Health
from persys.model.ids import Revision
from persys.model.spec import RestartPolicy
from persys.model.status import Actual, Failure


class Step(StrEnum):
    PULL = "pull"
    PREPARE_VOLUMES = "prepare_volumes"
    STOP = "stop"
    REMOVE = "remove"
    CREATE = "create"
    START = "start"
    RESTART = "restart"
    REPAIR = "repair"
    REPLACE = "replace"
    REMOVE_VOLUMES = "remove_volumes"


class Condition(StrEnum):
    """The state of a container, in the terms of the runtime."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    EXITED = "exited"
    DEAD = "dead"
    REMOVING = "removing"

    @property
    def active(self) -> bool:
        return self in (Condition.RUNNING, Condition.PAUSED, Condition.RESTARTING)


class ContainerRun(Struct, frozen=True):
    """The last run of one container or VM, as inspected."""

    name: str
    id: str
    started_at: datetime
    revision: Revision  # that it was created for
    restart_count: int = 0  # by the runtime, without one that is about to happen


class RestartCounter(Struct, frozen=True, omit_defaults=True):
    """`runs` are those of the last inspection, and of containers that have vanished since."""

    total: int = 0
    runs: tuple[ContainerRun, ...] = ()


class Artefact(Struct, frozen=True):
    """What the runtime has for a workload, as last inspected."""

    id: str
    name: str
    condition: Condition
    revision: Revision
    image: str = ""
    exit_code: int = 0
    oom_killed: bool = False
    restart_count: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    ports: tuple[str, ...] = ()
    error: str = ""
    address: str = ""  # reachable from the host
    health: Health | None = None  # None: no health check
    health_error: str = ""  # the failure of the last check
    health_failures: str = ""  # such as "2 of 3", before the first success
    # Only for a stack, which has many containers. The fields above are of the most significant one.
    part: str = ""
    parts: tuple[str, ...] = ()  # each service with its state, such as web=running
    others_active: bool = False
    runs: tuple[ContainerRun, ...] = ()  # of all containers
    restart: RestartPolicy | None = None  # of that container
    commit: str = ""  # of the repository with its Compose file
    # Only for a VM. Its end is in `error`; only the agent restarts it.
    boots: bool = False
    trouble: Failure | None = None  # why it is paused; it resumes afterwards
    facts: dict[str, str] = {}  # reported unchanged in the metadata
    look_again_after: timedelta | None = None  # when to inspect it again
    deviations: tuple[Deviation, ...] = ()  # from its configuration; only while running
    notes: tuple[str, ...] = ()  # for users, besides those about the spec
    overrun: Failure | None = None  # it exceeded its disk limit: it is stopped and failed
    # Only for a workload in another cluster, which restarts and checks it. An apply updates it in place.
    managed: bool = False
    reported: "Settled | None" = None  # its state; None: it should be in another state there

    @property
    def active(self) -> bool:
        return self.condition.active or self.others_active

    @property
    def run(self) -> ContainerRun | None:
        """Its run as a single container or VM. None: it was never started."""
        if self.started_at is None:
            return None
        is_pending = self.condition is Condition.RESTARTING and self.restart_count > 0
        count = self.restart_count - 1 if is_pending else self.restart_count
        return ContainerRun(self.name, self.id, self.started_at, self.revision, count)


class Settled(Struct, frozen=True):
    """Nothing to do now. A `final` result of finished work is kept after the container is removed."""

    actual: Actual
    code: str = ""
    message: str = ""
    failure: Failure | None = None
    look_again_at: datetime | None = None
    final: bool = False
    healthy: bool = False  # confirmed by a health check
    drifted: bool = False  # it runs, but differs from its configuration


class Perform(Struct, frozen=True):
    step: Step
    halts: bool = False  # stopped only because the scheduler is lost (`stop_after`)
    expires: bool = False  # stopped because its deadline has passed
    by_policy: bool = False  # requested by the spec: its restart policy or health check


class Progress(Struct, frozen=True):
    """The progress of the current order in the journal. A new order starts with an empty one."""

    done: frozenset[Step] = frozenset()
    launching: bool = False
    launched_from: datetime | None = None
    failure: Failure | None = None
    final_result: Settled | None = field(default=None, name="verdict")  # the name in the journal
    looping: bool = False
    restarts: int = 0  # consecutive, each after a brief run, where the runtime does not restart
    halted: bool = False  # stopped because the scheduler was lost; only a new order starts it again
    # Restarts because of a failed health check, since it was last healthy; with its name in the journal.
    health_restarts: int = field(default=0, name="cures")
    unhealthy_shown: bool = False
    repairs: Repairs = Repairs()
    restart_counter: RestartCounter = RestartCounter()
    run_started_at: datetime | None = None  # its first start, stored before it; None: not started
    expired: bool = False  # stopped because its deadline has passed

    def has_launched(self, artefact: Artefact) -> bool:
        return self.launching and artefact.started_at != self.launched_from


def counted(
    before: RestartCounter, seen: Iterable[ContainerRun], revision: Revision
) -> RestartCounter:
    """`revision` is that of the order."""
    runs = {run.name: run for run in before.runs}
    total = before.total
    for run in seen:
        if run.name in runs:
            total += _restarts_between(runs[run.name], run)
        elif run.revision == revision:  # an unchanged service of a stack has an older one
            total += run.restart_count
        runs[run.name] = run
    return RestartCounter(total, tuple(runs[name] for name in sorted(runs)))


def _restarts_between(old: ContainerRun, new: ContainerRun) -> int:
    if new.id != old.id:
        return 1 + new.restart_count
    if new.started_at == old.started_at:
        return 0
    automatic = new.restart_count - old.restart_count
    return automatic if automatic > 0 else 1 + new.restart_count
