"""A year of hourly load on a small cluster with a node pool, whose provider fails as drawn from a seed.

Minutes are the steps of time. The decisions are those of the scheduler; placement is first fit. Jobs on a
machine that vanishes begin again: what they had done is lost work.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random

from persys.core.nodepools.steps import PoolNode, Waiting
from persys.model.ids import NodeId, WorkloadId
from persys.model.nodepool import MachineSize, NodePool, PoolId
from persys.model.placement import Resources
from persys.sim.nodepools.control import CrashError, PoolControl
from persys.sim.nodepools.provider import CreateFault, SimulatedInstance, SimulatedProvider
from persys.sim.nodepools.report import YearReport

HOURS_OF_YEAR = 365 * 24
START = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
OFFLOAD_AFTER_MINUTES = 1
NODE_LOST_MINUTES = 2  # without heartbeats
QUEUE_SEEN_MAX = 60

SIZES = (
    MachineSize("small", Resources(2000, 7500, 40), 0.10),
    MachineSize("medium", Resources(4000, 15500, 80), 0.19),
    MachineSize("large", Resources(8000, 31500, 160), 0.37),
)
PRICES = {size.name: size.hour_price for size in SIZES}
HOME = Resources(16_000, 64_000, 0)
POOL = NodePool(PoolId("burst"), "simulated", sizes=SIZES, max_machines=20, spend_per_hour_max=3.0)
_FAULTS = {
    CreateFault.NONE: 84,
    CreateFault.THROTTLED: 6,
    CreateFault.SLOW: 3,
    CreateFault.HALF_CREATED: 2,
    CreateFault.NO_ANSWER: 2,
    CreateFault.LATE: 2,
    CreateFault.NOT_CREATED: 1,
}
_GONE_PER_MINUTE = 1 / (60 * 24 * 4)  # an instance vanishes every four days of its life, on average
_LIST_FAILS = 0.01
_CRASHES = 0.005


HOURS_OF_DAY = 24
DAYS_OF_WEEK = 7
_JOBS_PER_HOUR = 14.0
_SHAPES = ((1000, 1024), (1000, 2048), (2000, 4096), (4000, 8192))  # millicores, MiB
_SHAPE_WEIGHTS = (8, 5, 3, 1)


@dataclass(slots=True)
class Job:
    """Stateless work. If its node is lost it begins again."""

    number: int
    cpu_millicores: int
    memory_mb: int
    minutes: int
    arrives_at: int  # in minutes since the start
    started_at: int = 0


class Load:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0
        self._day_factor = 1.0

    def jobs_of(self, hour: int) -> list[Job]:
        """The jobs that arrive in one hour, in the order of their arrival."""
        if hour % HOURS_OF_DAY == 0:
            # One day in twenty has three times the usual load.
            self._day_factor = self._random.choice([0.8, 1.0, 1.0, 1.2])
            if self._random.random() < 0.05:
                self._day_factor = 3.0
        rate = _JOBS_PER_HOUR * self._day_factor * _profile(hour)
        jobs = list(self._drawn(hour, _poisson(self._random, rate)))
        return sorted(jobs, key=lambda job: job.arrives_at)

    def _drawn(self, hour: int, count: int) -> Iterator[Job]:
        for _ in range(count):
            self._count += 1
            cpu, memory = self._random.choices(_SHAPES, _SHAPE_WEIGHTS)[0]
            minutes = 10 + round(self._random.expovariate(1 / 60))
            at = 60 * hour + self._random.randrange(60)
            yield Job(self._count, cpu, memory, minutes, at)


@dataclass(slots=True)
class Worker:
    """A node: of the cluster, or a machine of the pool."""

    size: Resources
    instance: SimulatedInstance | None = None
    jobs: dict[int, Job] = field(default_factory=dict)
    idle_since: datetime = START
    closed: bool = False
    lost_at: int | None = None  # when its instance vanished

    def free(self) -> Resources:
        used = Resources(
            sum(job.cpu_millicores for job in self.jobs.values()),
            sum(job.memory_mb for job in self.jobs.values()),
        )
        return self.size - used


class Year:
    def __init__(self, seed: int, hours: int = HOURS_OF_YEAR) -> None:
        self._random = Random(seed)  # noqa: S311 - a simulation
        self._load = Load(Random(seed + 1))  # noqa: S311 - a simulation
        self._provider = SimulatedProvider(boot=3 * MINUTE, slow_boot=40 * MINUTE)
        self._steps_left: int | None = None
        self._control = PoolControl(
            POOL,
            self._provider,
            fault=self._fault,
            late=lambda: self._random.choice([2, 8]) * MINUTE,
            drain=self._drain,
            remove=self._remove,
            reached=self._reached,
        )
        self._minute = 0
        self._home = Worker(HOME)
        self._workers: dict[NodeId, Worker] = {}
        self._queue: deque[Job] = deque()
        self._ends: list[tuple[int, int, NodeId | None]] = []
        self.report = YearReport(hours, HOME.cpu_millicores / 1000, POOL.spend_per_hour_max)

    @property
    def _now(self) -> datetime:
        return START + self._minute * MINUTE

    def run(self) -> YearReport:
        """All hours, then until every machine is destroyed again."""
        for hour in range(self.report.hours):
            arriving = deque(self._load.jobs_of(hour))
            self.report.jobs += len(arriving)
            for _ in range(60):
                while arriving and arriving[0].arrives_at <= self._minute:
                    self._queue.append(arriving.popleft())
                self._step()
        while (self._queue or self._ends or self._workers) and self._minute < 2 * 60 * (
            self.report.hours + 48
        ):
            self._step()
        tracked = {machine.provider_id for machine in self._control.machines.values()}
        self.report.left_over = sum(
            one.provider_id not in tracked for one in self._provider.existing(self._now)
        )
        self.report.created = self._provider.created_count
        return self.report

    def _step(self) -> None:
        self._minute += 1
        self._end_jobs()
        self._lose_instances()
        self._boot()
        self._place()
        if self._queue or self._workers or self._control.machines or self._minute % 5 == 0:
            self._pass()
        self._account()

    def _end_jobs(self) -> None:
        while self._ends and self._ends[0][0] <= self._minute:
            _, number, node_id = heappop(self._ends)
            worker = self._workers.get(node_id) if node_id is not None else self._home
            job = worker.jobs.get(number) if worker is not None else None
            if worker is None or job is None or worker.lost_at is not None:
                continue
            if job.started_at + job.minutes > self._minute:
                continue  # it began again since
            del worker.jobs[number]
            worker.idle_since = self._now
            self.report.done += 1
            self.report.work_minutes += job.minutes

    def _lose_instances(self) -> None:
        for node_id, worker in list(self._workers.items()):
            instance = worker.instance
            assert instance is not None
            if worker.lost_at is None and self._random.random() < _GONE_PER_MINUTE:
                instance.ended_at = self._now
            if instance.ended_at is not None and worker.lost_at is None:
                worker.lost_at = self._minute
            if worker.lost_at is not None and self._minute - worker.lost_at >= NODE_LOST_MINUTES:
                self._requeue(worker)
            if (
                worker.lost_at is not None
                and not worker.jobs
                and instance.name not in (self._control.machines)
            ):
                del self._workers[node_id]

    def _requeue(self, worker: Worker) -> None:
        for job in worker.jobs.values():
            self.report.lost_minutes += max(0, (worker.lost_at or 0) - job.started_at)
            job.arrives_at = self._minute
            self._queue.appendleft(job)
        worker.jobs.clear()

    def _boot(self) -> None:
        for instance in self._provider.booted(self._now):
            node_id = NodeId(instance.name)
            if node_id not in self._workers:
                size = next(size for size in SIZES if size.name == instance.size)
                self._workers[node_id] = Worker(size.resources, instance, idle_since=self._now)

    def _place(self) -> None:
        for _ in range(min(len(self._queue), QUEUE_SEEN_MAX)):
            job = self._queue.popleft()
            if not self._start(job):
                self._queue.append(job)
                # The queue keeps its order: what waits is seen again in the next minute.
        self._queue = deque(sorted(self._queue, key=lambda job: (job.arrives_at, job.number)))

    def _start(self, job: Job) -> bool:
        need = Resources(job.cpu_millicores, job.memory_mb)
        candidates: list[tuple[NodeId | None, Worker]] = [(None, self._home)]
        candidates += [
            (node_id, worker)
            for node_id, worker in self._workers.items()
            if worker.lost_at is None and not worker.closed
        ]
        for node_id, worker in candidates:
            if need.fits_in(worker.free()):
                worker.jobs[job.number] = job
                job.started_at = self._minute
                self.report.waits.append(self._minute - job.arrives_at)
                heappush(self._ends, (self._minute + job.minutes, job.number, node_id))
                return True
        return False

    def _pass(self) -> None:
        if self._random.random() < _CRASHES:
            self._steps_left = self._random.randint(0, 3)
        try:
            answers = self._random.random() >= _LIST_FAILS
            self._control.run_pass(self._waiting(), self._nodes(), self._now, answers=answers)
        except CrashError:
            self._control.restart()
            self.report.crashes += 1
        finally:
            self._steps_left = None

    def _waiting(self) -> list[Waiting]:
        found = []
        for job in list(self._queue)[:QUEUE_SEEN_MAX]:
            need = Resources(job.cpu_millicores, job.memory_mb)
            sizes = frozenset(size.name for size in SIZES if need.fits_in(size.resources))
            grows_at = START + (job.arrives_at + OFFLOAD_AFTER_MINUTES) * MINUTE
            found.append(Waiting(WorkloadId(f"job-{job.number}"), need, grows_at, sizes))
        return found

    def _nodes(self) -> dict[NodeId, PoolNode]:
        return {
            node_id: PoolNode(
                ready=worker.lost_at is None,
                since=worker.idle_since,
                workload_count=len(worker.jobs),
                idle_since=worker.idle_since if not worker.jobs else None,
                free=worker.free(),
                closed=worker.closed,
            )
            for node_id, worker in self._workers.items()
        }

    def _drain(self, node_id: NodeId) -> None:
        self._workers[node_id].closed = True

    def _remove(self, node_id: NodeId) -> None:
        worker = self._workers.pop(node_id, None)
        if worker is not None:
            worker.lost_at = worker.lost_at or self._minute
            self._requeue(worker)

    def _reached(self) -> None:
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise CrashError("crashed")

    def _fault(self) -> CreateFault:
        drawn: CreateFault = self._random.choices(list(_FAULTS), list(_FAULTS.values()))[0]
        return drawn

    def _account(self) -> None:
        """The spend of this minute; it is never above the limit."""
        existing = self._provider.existing(self._now)
        rate = sum(PRICES[one.size] for one in existing)
        assert round(rate, 6) <= POOL.spend_per_hour_max
        report = self.report
        report.spend += rate / 60
        report.spend_peak = max(report.spend_peak, rate)
        if self._minute % (60 * 24) == 1:
            report.demand_by_day.append(0.0)
            report.cores_by_day.append(0.0)
            report.spend_by_day.append(0.0)
        report.spend_by_day[-1] += rate / 60
        if self._minute % 60 == 0:
            self._sample()

    def _sample(self) -> None:
        """Once per hour."""
        running = [*self._home.jobs.values()]
        for worker in self._workers.values():
            running += worker.jobs.values()
        demand = sum(job.cpu_millicores for job in (*running, *self._queue)) / 1000
        cores = sum(worker.size.cpu_millicores for worker in self._workers.values()) / 1000
        self.report.demand_by_day[-1] += demand / 24
        self.report.cores_by_day[-1] += cores / 24


def _profile(hour: int) -> float:
    """High in working hours, low at night and at weekends."""
    of_day = hour % HOURS_OF_DAY
    day = hour // HOURS_OF_DAY % DAYS_OF_WEEK
    curve = 0.25 + 0.75 * max(0.0, math.sin(math.pi * (of_day - 6) / 14))
    return curve * (0.4 if day >= 5 else 1.0)


def _poisson(random: Random, rate: float) -> int:
    """Knuth's method: the rates are small."""
    limit, product, count = math.exp(-rate), 1.0, 0
    while True:
        product *= random.random()
        if product <= limit:
            return count
        count += 1
