"""Builds the reports of the agent: an observation per workload, and heartbeats with pending changes.

A refused order is neither reported nor listed. For a while its status can be requested by id, so that the
reason is visible on the node.
"""

import asyncio
from collections.abc import Callable, Iterable

from persys.agent.journal.records import DeletionMarker, Entry
from persys.agent.journal.store import Journal
from persys.agent.networks.controller import NetworkController
from persys.agent.node.usage import UtilizationSampler, WorkloadUsageSampler
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.report import shortened
from persys.core.networks.addresses import addresses_metadata
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import NodeId, WorkloadId
from persys.model.spec import WorkloadType
from persys.model.status import Observation
from persys.model.workload import Desired
from persys.wire.agent.messages import REASON_CODE, TASK_ID
from persys.wire.control.messages import status_message, usage_message, workload_usage_message
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

TASK_STATUS = "task_status"
INTERNAL_ERRORS_MAX = 16
PROBLEM_LENGTH_MAX = 1_000
POLICY_VIOLATION = "policy_violation"
REFUSALS_MAX = 1_000
REFUSAL_SECONDS = 600.0


class Refusals:
    """Recently refused orders by workload. In memory only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, agent_pb2.WorkloadStatus]] = {}  # oldest first

    def note(self, status: agent_pb2.WorkloadStatus) -> None:
        self.drop(status.id)
        self._kept[status.id] = (self._clock.monotonic(), status)
        if len(self._kept) > REFUSALS_MAX:
            del self._kept[next(iter(self._kept))]

    def drop(self, workload_id: str) -> None:
        """Remove a refusal: a later order was accepted, or the workload was deleted."""
        self._kept.pop(workload_id, None)

    def get(self, workload_id: str) -> agent_pb2.WorkloadStatus | None:
        noted_at, status = self._kept.get(workload_id, (0.0, None))
        if status is not None and self._clock.monotonic() - noted_at > REFUSAL_SECONDS:
            self.drop(workload_id)
            return None
        return status


class ReportBuilder:
    def __init__(
        self,
        node_id: NodeId,
        journal: Journal,
        host_sampler: UtilizationSampler,
        usage_sampler: WorkloadUsageSampler,
        clock: Clock,
        supervisor: Supervisor,
        *,
        unavailable: Callable[[], Iterable[WorkloadType]],
        runtime_problem: Callable[[], str],
        policy: NodePolicy,
        networks: NetworkController | None = None,
    ) -> None:
        """`unavailable`: the workload types whose runtime does not respond now; `runtime_problem`: why."""
        self._node_id = node_id
        self._journal = journal
        self._host_sampler = host_sampler
        self._usage_sampler = usage_sampler
        self._clock = clock
        self._supervisor = supervisor
        self._unavailable = unavailable
        self._runtime_problem = runtime_problem
        self._policy = policy
        self._networks = networks

    def heartbeat(
        self,
        workload_ids: Iterable[WorkloadId],
        *,
        deleted: Iterable[DeletionMarker],
        complete: bool,
    ) -> control_pb2.HeartbeatRequest:
        """`complete`: the heartbeat covers all workloads of this node."""
        return control_pb2.HeartbeatRequest(
            node_id=self._node_id,
            usage=usage_message(self._host_sampler.usage()),
            workload_statuses=[
                status_message(observation_of(entry, self._journal, self._node_id, self._policy))
                for workload_id in workload_ids
                if (entry := self._journal.entries.get(workload_id)) is not None
            ],
            timestamp=timestamp(self._clock.now()),
            workload_usage=[
                workload_usage_message(used) for used in self._usage_sampler.usage.values()
            ]
            if complete
            else (),
            complete=complete,
            removed_workload_ids=[marker.workload_id for marker in deleted],
            internal_errors=[
                _internal_error(error) for error in self._supervisor.recent()[:INTERNAL_ERRORS_MAX]
            ],
            unavailable_types=[kind.value for kind in self._unavailable()],
            journal_problem=shortened(self._journal.problem(), PROBLEM_LENGTH_MAX),
            runtime_problem=shortened(self._runtime_problem(), PROBLEM_LENGTH_MAX),
            networks_version=self._networks.version if self._networks is not None else "",
            network_ids=self._networks.network_ids() if self._networks is not None else (),
        )


def _internal_error(error: InternalError) -> control_pb2.InternalError:
    return control_pb2.InternalError(
        component=error.component,
        where=error.where,
        key=error.key,
        text=error.text,
        count=error.count,
        last_at=timestamp(error.last_at),
    )


def observation_of(
    entry: Entry, journal: Journal, node_id: NodeId, policy: NodePolicy
) -> Observation:
    """`seen_at` is the time of the last status change."""
    status = entry.status
    metadata = {**status.metadata, TASK_ID: entry.action_id}
    metadata |= addresses_metadata(journal.members.get(entry.order.workload_id, ()))
    action = journal.actions.get(entry.action_id)
    if action is not None:
        metadata[TASK_STATUS] = action.state.value
    # It was accepted before the policy became stricter; its next apply is refused.
    if entry.order.desired is not Desired.DELETED and (
        violation := policy.violation(entry.order.spec)
    ):
        metadata[POLICY_VIOLATION] = violation
    if status.code:
        metadata[REASON_CODE] = status.code
    return Observation(
        workload_id=entry.order.workload_id,
        node_id=node_id,
        actual=status.actual,
        seen_at=status.changed_at,
        revision=entry.order.revision,
        epoch=entry.order.epoch,
        failure=status.failure,
        message=status.message,
        metadata=metadata,
        proof=entry.order.proof,
        action=action if action is not None and action.has_ended else None,
    )


class PendingReports:
    """Changes that were not reported to the scheduler yet: of workloads, and of the node itself."""

    def __init__(self) -> None:
        self._changed: set[WorkloadId] = set()
        self._pending = asyncio.Event()
        self.node_changed = False

    def add(self, workload_id: WorkloadId) -> None:
        self._changed.add(workload_id)
        self._pending.set()

    def add_node(self) -> None:
        """The capabilities of the node changed: it registers again at once."""
        self.node_changed = True
        self._pending.set()

    def take(self) -> set[WorkloadId]:
        changed, self._changed = self._changed, set()
        self._pending.clear()
        self.node_changed = False
        return changed

    async def wait(self, seconds: float) -> bool:
        """True when there is a change to report, False after a timeout."""
        try:
            async with asyncio.timeout(seconds):
                await self._pending.wait()
        except TimeoutError:
            return False
        return True
