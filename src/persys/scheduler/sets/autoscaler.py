"""Automatic scaling: samples of usage and of Prometheus, in memory of the leader, and the changes they cause.

Usage is what heartbeats have reported anyway. Nothing is stored until the number of replicas changes. A
metric that is not known requests the present number, so an error never causes a scale-down.

The address of a Prometheus server comes from users, so little depends on it: each query has a deadline,
redirects are not followed, the response is bounded, and errors contain nothing of its content.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from persys.core.sets import changes
from persys.core.sets.autoscale import (
    Measurement,
    Window,
    desired_replicas,
    sample,
    with_sample,
)
from persys.core.sets.changes import SetChange, Unchanged
from persys.errors import FencedError, PersysError, UnavailableError
from persys.infra.aio.supervisor import KeyedWork
from persys.infra.clock import Clock
from persys.model.sets import ScalePolicy, SetId, WorkloadSet
from persys.model.status import Status
from persys.model.workload import Desired
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.sets.sets import Change, Sets
from persys.scheduler.state.cluster import ClusterState, WorkloadState

log = structlog.get_logger()

SAMPLE_SECONDS = 15.0
USAGE_AGE_MAX = timedelta(seconds=60)
KNOWN_SHARE_MIN = 0.8  # of the running members: with fewer, the average is not known
SAMPLES_AT_ONCE = 16
IDENTITY = "system/autoscaler"  # in events

Query = Callable[[str, str], Awaitable[float]]
"""The value of a query at the address of a Prometheus server. Raises UnavailableError."""


class Autoscaler:
    def __init__(
        self,
        cluster: ClusterState,
        sets: Sets,
        clock: Clock,
        *,
        query: Query,
        may_act: Callable[[], bool],
        work: KeyedWork[str],
    ) -> None:
        """`may_act`: the mode is normal and this scheduler leads."""
        self._cluster = cluster
        self._sets = sets
        self._clock = clock
        self._query = query
        self._may_act = may_act
        self._work = work
        self._windows: dict[str, Window] = {}
        self._reasons: dict[str, str] = {}

    def begin_to_lead(self) -> None:
        """Samples of an earlier term are too old."""
        self._windows.clear()
        self._reasons.clear()

    def reason(self, set_id: str) -> str:
        """What the metrics of a set requested last, and why; "" if it is not known."""
        return self._reasons.get(set_id, "")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            await self.sample_all()

    async def sample_all(self) -> None:
        """One sample of each set, at most some at a time: a query may take until its deadline."""
        scaled = [record.set_id for record in self._cluster.sets.values() if _is_scaled(record)]
        for known in self._windows.keys() - set(scaled):
            del self._windows[known]
            self._reasons.pop(known, None)
        for start in range(0, len(scaled), SAMPLES_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for set_id in scaled[start : start + SAMPLES_AT_ONCE]:
                    group.create_task(self._contained(set_id))

    async def _contained(self, set_id: SetId) -> None:
        if not self._work.is_due(set_id):
            return
        try:
            with self._work.contain(set_id):
                await self._sample(set_id)
        except FencedError:
            raise
        except PersysError as err:
            log.info("set.not_scaled", set_id=set_id, reason=str(err))

    async def _sample(self, set_id: SetId) -> None:
        before = self._cluster.sets.get(set_id)
        if before is None or before.scale is None:
            return
        value, problem = await self._prometheus(before.scale)
        record = self._cluster.sets.get(set_id)
        if record is None or record.scale is None or record.scale != before.scale:
            return
        now, policy = self._clock.now(), record.scale
        measured = self._measured(record, policy, value, now)
        window = with_sample(self._windows.get(set_id, ()), sample(policy, measured, now))
        self._windows[set_id] = window
        scaling = desired_replicas(
            policy, record.replicas, window, now=now, scaled_at=record.scaled_at
        )
        reason = "; ".join(part for part in (scaling.reason, problem) if part)
        self._reasons[set_id] = reason
        if scaling.replicas != record.replicas and self._may_act():
            await self._scale(record, scaling.replicas, reason)

    async def _prometheus(self, policy: ScalePolicy) -> tuple[float | None, str]:
        """The value of the query, or why it is not known."""
        if not policy.prometheus_url:
            return None, ""
        try:
            return await self._query(policy.prometheus_url, policy.prometheus_query), ""
        except UnavailableError as err:
            return None, str(err)

    def _measured(
        self, record: WorkloadSet, policy: ScalePolicy, value: float | None, now: datetime
    ) -> Measurement:
        running = [
            entry
            for workload_id in self._cluster.members.of(record.set_id)
            if _is_running(entry := self._cluster.workloads[workload_id])
        ]
        return Measurement(
            record.replicas,
            len(running),
            _average(_cpu_percents(running, now), len(running)) if policy.cpu_percent else None,
            _average(_memory_percents(running, now), len(running))
            if policy.memory_percent
            else None,
            value,
        )

    async def _scale(self, sampled: WorkloadSet, replicas: int, reason: str) -> None:
        def make(old: WorkloadSet | None, now: datetime) -> Change:
            if old is None or old.replicas != sampled.replicas or old.scale != sampled.scale:
                return Unchanged(old or sampled)  # a user was faster
            return changes.autoscaled(old, replicas, reason, now=now)

        outcome = await self._sets.change(sampled.set_id, make, extra_writes=_attributed)
        if isinstance(outcome, SetChange):
            log.info(
                "set.scaled",
                set_id=sampled.set_id,
                before=sampled.replicas,
                replicas=replicas,
                reason=reason,
            )


def _attributed(_outcome: Change, change: Transaction) -> None:
    change.events[:] = [replace(event, identity=IDENTITY) for event in change.events]


def _is_scaled(record: WorkloadSet) -> bool:
    return record.scale is not None and record.desired is Desired.RUNNING


def _is_running(entry: WorkloadState) -> bool:
    status = entry.workload_status
    return (
        entry.workload.desired is Desired.RUNNING
        and status is not None
        and status.status is Status.RUNNING
    )


def _cpu_percents(entries: Iterable[WorkloadState], now: datetime) -> list[float]:
    """The CPU usage of those that report it, in percent of their requests."""
    return [
        1000 * entry.usage.cpu_percent / entry.workload.resources.cpu_millicores
        for entry in entries
        if entry.usage is not None
        and now - entry.usage.collected_at <= USAGE_AGE_MAX
        and entry.workload.resources.cpu_millicores
    ]


def _memory_percents(entries: Iterable[WorkloadState], now: datetime) -> list[float]:
    """The same for memory."""
    return [
        100 * entry.usage.memory_bytes / (entry.workload.resources.memory_mb << 20)
        for entry in entries
        if entry.usage is not None
        and now - entry.usage.collected_at <= USAGE_AGE_MAX
        and entry.workload.resources.memory_mb
    ]


def _average(percents: list[float], running_count: int) -> float | None:
    if not percents or len(percents) < KNOWN_SHARE_MIN * running_count:
        return None
    return sum(percents) / len(percents)


QUERY_DEADLINE = timedelta(seconds=5)
RESPONSE_BYTES_MAX = 256 * 1024
_OK = 200


class _Series(Struct):
    value: tuple[float, str]


class _Data(Struct, rename={"type": "resultType"}):
    type: str
    result: msgspec.Raw


class _Answer(Struct):
    data: _Data


async def query_value(url: str, query: str, *, deadline: timedelta = QUERY_DEADLINE) -> float:
    """The value of a query with one result. Raises UnavailableError that says why there is none."""
    import aiohttp  # a slow import, needed only by sets that are scaled by Prometheus

    timeout = aiohttp.ClientTimeout(total=deadline.total_seconds())
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"{url.rstrip('/')}/api/v1/query", params={"query": query}, allow_redirects=False
            ) as response,
        ):
            content = b""
            while not response.content.at_eof() and len(content) <= RESPONSE_BYTES_MAX:
                content += await response.content.read(RESPONSE_BYTES_MAX)
            status = response.status
    except TimeoutError as err:
        seconds = deadline.total_seconds()
        raise UnavailableError(f"Prometheus did not respond within {seconds:g} s") from err
    except (aiohttp.ClientError, OSError, ValueError) as err:
        raise UnavailableError("Prometheus cannot be reached at this address") from err
    if status != _OK:
        raise UnavailableError(f"Prometheus responded with status {status}")
    if len(content) > RESPONSE_BYTES_MAX:
        raise UnavailableError("the response of Prometheus is too large: expected one value")
    return parsed_value(content)


def parsed_value(content: bytes) -> float:
    """The number in the response to a query. Raises UnavailableError."""
    try:
        data = msgspec.json.decode(content, type=_Answer).data
        texts = _values(data)
    except msgspec.DecodeError as err:
        raise UnavailableError("the response is not one of Prometheus") from err
    if len(texts) != 1:
        raise UnavailableError(f"the query has {len(texts)} values: expected one")
    try:
        value = float(texts[0])
    except ValueError as err:
        raise UnavailableError("the value of the query is not a number") from err
    if not math.isfinite(value):
        raise UnavailableError("the value of the query is not a number")
    return value


def _values(data: _Data) -> list[str]:
    if data.type == "scalar":
        return [msgspec.json.decode(data.result, type=tuple[float, str])[1]]
    if data.type != "vector":
        raise UnavailableError("the result of the query is not a vector: expected one value")
    return [one.value[1] for one in msgspec.json.decode(data.result, type=list[_Series])]
