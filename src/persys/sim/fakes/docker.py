"""A model of the runtimes of one node: containers, stacks and VMs, which keep running when the agent crashes.

A stack or a VM is modelled as a container with a behaviour derived from its spec (`behaviour_of`). The last
two parts of the image name define the behaviour: `steady/1` runs until it is stopped, `job/30` exits with 0
after 30 s, `faulty/10` fails after 10 s, `missing/1` and `refused/1` cannot be pulled. With a health check,
`ready/5` is healthy after 5 s and `sick/5` unhealthy after 5 s; both run until they are stopped.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Protocol

from persys.core.agent.health import Health
from persys.core.agent.progress import Artefact, Condition
from persys.core.backoff import doubled_seconds
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    RestartPolicy,
    Spec,
    VMSpec,
    WorkloadType,
)
from persys.model.workload import Order
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.virtual_loop import later

RESTART_FIRST_SECONDS = 0.1
RESTART_LONGEST_SECONDS = 60.0
STEADY_SECONDS = 10.0
KILLED = 137
CHECKED = {"ready": Health.HEALTHY, "sick": Health.UNHEALTHY}  # the health after a while


class Observer(Protocol):
    """Checks every operation on containers and volumes, and the contacts of agents."""

    def heard(self, node_id: NodeId, sent: float) -> None: ...

    def joins(self, node_id: NodeId) -> None: ...

    def fail(self, promise: str, text: str) -> None: ...

    def start_requested(self, node_id: NodeId, order: Order) -> None: ...

    def stop_requested(self, node_id: NodeId, order: Order, container_id: str) -> None: ...

    def container_starts(
        self, node_id: NodeId, container: "Container", *, by_agent: bool
    ) -> None: ...

    def container_stops(self, node_id: NodeId, container: "Container", order: Order) -> None: ...

    def container_ended(self, node_id: NodeId, container: "Container") -> None: ...

    def volumes_go(
        self, node_id: NodeId, workload_id: WorkloadId, names: frozenset[str]
    ) -> None: ...


@dataclass(slots=True, eq=False)
class Container:
    id: str
    workload_id: WorkloadId
    revision: Revision
    epoch: int
    spec: ContainerSpec
    stop_after_seconds: int = 0
    kind: WorkloadType = WorkloadType.CONTAINER
    holds_data: bool = False
    run_once: bool = False
    condition: Condition = Condition.CREATED
    exit_code: int = 0
    oom_killed: bool = False
    restart_count: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    stopped_by_hand: bool = False
    health: Health | None = None  # None: it has no health check
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    @property
    def restarts(self) -> RestartPolicy:
        """The policy of the runtime itself. The agent restarts VMs and workloads with stop_after."""
        if self.stop_after_seconds or self.kind is WorkloadType.VM or self.run_once:
            return RestartPolicy("no")
        return self.spec.restart

    @property
    def is_left_to_agent(self) -> bool:
        """Whether the agent restarts it after it exits."""
        by_agent = bool(self.stop_after_seconds) or self.kind is WorkloadType.VM
        return not self.run_once and by_agent and not self.spec.restart.runs_to_completion

    @property
    def exits_alone(self) -> bool:
        """Whether it exits without being stopped."""
        return behaves_like(self.spec.image)[0] not in ("steady", *CHECKED)

    @property
    def is_healthy(self) -> bool:
        return self.condition is Condition.RUNNING and self.health in (None, Health.HEALTHY)

    @property
    def host_ports(self) -> frozenset[int]:
        return frozenset(port.host_port for port in self.spec.ports if port.host_port)

    def artefact(self) -> Artefact:
        return Artefact(
            id=self.id,
            name=f"persys-{self.workload_id}",
            condition=self.condition,
            revision=self.revision,
            image=self.spec.image,
            exit_code=self.exit_code,
            oom_killed=self.oom_killed,
            restart_count=self.restart_count,
            started_at=self.started_at,
            finished_at=self.finished_at,
            health=self.health,
        )


class Docker:
    def __init__(
        self, node_id: NodeId, clock: WallClock, random: Random, observer: Observer
    ) -> None:
        self.node_id = node_id
        self._clock = clock
        self._random = random
        self._observer = observer
        self.containers: dict[WorkloadId, Container] = {}
        self.images: set[str] = set()
        self.hanging_pulls: Counter[str] = Counter()  # by image
        self.volumes: set[tuple[WorkloadId, str]] = set()
        self.listeners: list[Callable[[WorkloadId | None], None]] = []
        self._count = 0

    def live(self) -> list[Container]:
        return [each for each in self.containers.values() if each.condition.active]

    def create(self, order: Order) -> Container:
        self._count += 1
        spec = behaviour_of(order.spec)
        container = Container(
            f"{self.node_id}-{self._count}",
            order.workload_id,
            order.revision,
            order.epoch,
            spec,
            order.stop_after_seconds,
            order.type,
            _holds_data(order.spec),
            order.run_once,
        )
        self.containers[order.workload_id] = container
        self._notify(container)
        return container

    def port_conflict(self, container: Container) -> int | None:
        taken = {
            port for other in self.live() if other is not container for port in other.host_ports
        }
        return min(taken & container.host_ports, default=None)

    def start(self, container: Container, *, by_agent: bool = True) -> None:
        self._observer.container_starts(self.node_id, container, by_agent=by_agent)
        if by_agent:
            container.restart_count = 0
        self._cancel_timers(container)
        container.condition = Condition.RUNNING
        container.oom_killed = False
        container.started_at = self._clock.now()
        container.stopped_by_hand = False
        kind, seconds = behaves_like(container.spec.image)
        if kind in ("job", "faulty"):
            self._later(container, float(seconds), lambda: self._ends(container, kind == "faulty"))
        elif kind in CHECKED:
            container.health = Health.STARTING
            self._later(container, float(seconds), lambda: self._check(container, CHECKED[kind]))
        self._notify(container)

    def stop(self, container: Container, order: Order) -> None:
        if not container.condition.active:
            return
        self._observer.container_stops(self.node_id, container, order)
        container.stopped_by_hand = True
        self._exit(container, KILLED)

    def remove(self, container: Container, order: Order) -> None:
        if container.condition.active:
            self._observer.container_stops(self.node_id, container, order)
        self._cancel_timers(container)
        container.condition = Condition.DEAD
        if self.containers.get(container.workload_id) is container:
            del self.containers[container.workload_id]
        self._notify(container)

    def kill_one(self, *, oom: bool) -> None:
        """Kill the process in a random running container."""
        live = self.live()
        if live:
            killed = live[self._random.randrange(len(live))]
            killed.oom_killed = oom
            self._ends(killed, True, code=KILLED if oom else 1)

    def power_off(self) -> None:
        for container in self.containers.values():
            self._cancel_timers(container)
            if container.condition.active:
                container.condition = Condition.EXITED
                container.exit_code = KILLED
                container.finished_at = self._clock.now()
        self.lose_listeners()

    def power_on(self) -> None:
        """Docker restarts containers by their restart policy, without the agent."""
        for container in list(self.containers.values()):
            policy = container.restarts.name
            if container.started_at is None or container.stopped_by_hand:
                continue
            if policy in ("always", "unless-stopped") or (
                policy == "on-failure" and container.exit_code
            ):
                self.start(container, by_agent=False)

    def wipe(self) -> None:
        self.power_off()
        self.containers.clear()
        self.images.clear()
        self.volumes.clear()

    def lose_listeners(self) -> None:
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener(None)

    def _ends(self, container: Container, badly: bool, *, code: int = 1) -> None:
        ran = 0.0
        if container.started_at is not None:
            ran = (self._clock.now() - container.started_at).total_seconds()
        self._exit(container, code if badly else 0)
        self._observer.container_ended(self.node_id, container)
        if self._restarts(container):
            container.condition = Condition.RESTARTING
            count = 0 if ran >= STEADY_SECONDS else container.restart_count
            delay = doubled_seconds(RESTART_FIRST_SECONDS, count, longest=RESTART_LONGEST_SECONDS)
            container.restart_count += 1  # Docker counts a restart when it is scheduled
            self._later(container, delay, lambda: self._restart(container))

    def _check(self, container: Container, health: Health) -> None:
        """Its health check has passed, or has failed too often."""
        container.health = health
        self._notify(container)

    def _restarts(self, container: Container) -> bool:
        policy = container.restarts
        if policy.name == "on-failure":
            limit = policy.retries_max
            return container.exit_code != 0 and (not limit or container.restart_count < limit)
        return policy.name in ("always", "unless-stopped")

    def _restart(self, container: Container) -> None:
        count = container.restart_count
        self.start(container, by_agent=False)
        container.restart_count = count

    def _exit(self, container: Container, code: int) -> None:
        self._cancel_timers(container)
        container.condition = Condition.EXITED
        container.exit_code = code
        container.finished_at = self._clock.now()
        self._notify(container)

    def _later(self, container: Container, seconds: float, callback: Callable[[], None]) -> None:
        container.timers.append(later(seconds, callback))

    def _cancel_timers(self, container: Container) -> None:
        for timer in container.timers:
            timer.cancel()
        container.timers.clear()

    def _notify(self, container: Container) -> None:
        for listener in self.listeners:
            listener(container.workload_id)


def behaves_like(image: str) -> tuple[str, str]:
    """The behaviour of an image and its argument."""
    *_, kind, argument = image.split("/")
    return kind, argument


def behaviour_of(spec: Spec) -> ContainerSpec:
    """The container spec that models this spec."""
    match spec:
        case ContainerSpec():
            return spec
        case ComposeSpec():
            return ContainerSpec(image=spec.env["BEHAVIOUR"], ports=spec.needs.ports)
        case VMSpec():
            return ContainerSpec(image="steady/vm", restart=spec.restart)


def _holds_data(spec: Spec) -> bool:
    match spec:
        case ContainerSpec():
            return bool(spec.managed_volumes)
        case ComposeSpec():
            return spec.needs.holds_data
        case VMSpec():
            return True
