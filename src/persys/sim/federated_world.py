"""Two simulated clusters: the first one has a federated node, whose runtime is the second one."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from persys.federation.mapping import Names
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.status import WorkloadStatus
from persys.sim.checks.context import Probe, Violation
from persys.sim.checks.federation import RemoteCopies, RemoteInvariants, leftovers, waiting
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, rng
from persys.sim.fakes.docker import Container
from persys.sim.fakes.federated_node import FederatedNode, SimRemote, Token
from persys.sim.scenario.plan import (
    FEDERATED,
    Plan,
    PlannedEvent,
    remote_shape,
    scheduler_names,
    streaming_nodes,
)
from persys.sim.scenario.specs import FILLER, spec_of, variant_of
from persys.sim.world import NODE_LEASE_SECONDS, World
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2

FILLERS_PER_NODE = 2
FILL_SECONDS = 0.5
# Until the federated node has registered a changed capacity of the remote cluster.
OFFER_SECONDS = 45.0


class RemoteWorld(World):
    """The second cluster. Its violations end the run of both."""

    def __init__(
        self,
        plan: Plan,
        trace: Trace,
        copies: RemoteCopies,
        *,
        report: Callable[[Violation], None],
        starts: Callable[[Container], None],
        status_at_home: Callable[[WorkloadId], WorkloadStatus | None],
    ) -> None:
        self._copies = copies
        self._report = report
        self._starts = starts
        self._status_at_home = status_at_home
        self.fills = 0  # how many plans are followed by a cluster without capacity
        super().__init__(plan, trace=trace)

    def _new_invariants(self, probe: Probe) -> RemoteInvariants:
        return RemoteInvariants(
            probe,
            self.trace,
            self._copies,
            lease_seconds=NODE_LEASE_SECONDS,
            failed=self._failed,
            starts=self._starts,
        )

    async def planned(self) -> None:
        """Other users take the capacity between a plan and the apply that follows it."""
        if self.fills:
            self.fills -= 1
            self.fill()
            await asyncio.sleep(FILL_SECONDS)

    def fill(self) -> None:
        for name in self._fillers():
            self.users.do(PlannedEvent(0.0, "apply", name, amount=1))

    def empty(self) -> None:
        for name in self._fillers():
            self.users.do(PlannedEvent(0.0, "delete", name))

    def _fillers(self) -> list[str]:
        return [f"{FILLER}{number}" for number in range(FILLERS_PER_NODE * len(self.nodes))]

    def fails_elsewhere(self) -> frozenset[WorkloadId]:
        return frozenset(
            workload.id
            for workload in self.invariants.mirror.workloads.values()
            if (status := self._status_at_home(workload.id)) is not None
            and status.failure is not None
        )

    def copies_of_home(self) -> list[Container]:
        assert isinstance(self.invariants, RemoteInvariants)
        return self.invariants.live_copies()

    def _requested(self, listener: str, method: str, request: Any) -> None:
        super()._requested(listener, method, request)
        if listener in self.hosts:
            assert isinstance(self.invariants, RemoteInvariants)
            self.invariants.received(method, request)

    def _failed(self, violation: Violation) -> None:
        self._report(violation)


class FederatedWorld(World):
    remote_type = SimRemote
    settling_seconds = OFFER_SECONDS

    def __init__(self, plan: Plan, *, trace: Trace | None = None) -> None:
        super().__init__(plan, trace=trace)
        self.token = Token()
        self.copies = RemoteCopies(Names(self.cluster, FEDERATED), partial(_spec, plan.seed))
        shape = remote_shape(plan.shape)
        self.remote = RemoteWorld(
            Plan(plan.seed, shape, ()),
            self.trace,
            self.copies,
            report=self._failed,
            starts=self._remote_copy_starts,
            status_at_home=self._status_of,
        )
        self.nodes[FEDERATED] = FederatedNode(
            plan.seed,
            FEDERATED,
            self.network,
            self.invariants,
            schedulers=tuple(self.hosts),
            streams=bool(streaming_nodes(plan.seed, plan.shape)),
            cluster=self.cluster,
            connect_remote=self._connect_remote,
            copies=self._copied,
        )

    @property
    def clusters(self) -> tuple[World, ...]:
        return (self, self.remote)

    def open(self, group: asyncio.TaskGroup) -> None:
        self.remote.open(group)
        super().open(group)

    def close(self) -> None:
        super().close()
        self.remote.close()

    def end_faults(self) -> None:
        super().end_faults()
        self.remote.end_faults()

    def live(self) -> dict[NodeId, list[Container]]:
        """The copies in the remote cluster are those of the federated node."""
        return super().live() | {NodeId(FEDERATED): self.remote.copies_of_home()}

    def leftovers(self) -> list[str]:
        node_id, secrets = NodeId(FEDERATED), self.remote.store.written((keys.SECRETS,))
        home, remote = self.invariants.mirror, self.remote.invariants.mirror
        return [
            *leftovers(home, remote, secrets, self.copies.names, node_id),
            *waiting(home, remote, node_id),
            *self._orphans(),
        ]

    def _orphans(self) -> list[str]:
        """The federated node forgets what it does not run, unless the home cluster lost its records."""
        if self.invariants.has_unaccounted:
            return []
        found = sorted(self.invariants.mirror.orphans())
        return [f"{name} is an orphan on {node}" for node, name in found if node == FEDERATED]

    def _status_of(self, remote_id: WorkloadId) -> WorkloadStatus | None:
        local = self.copies.names.local(remote_id)
        return self.invariants.mirror.workload_status(local) if local is not None else None

    def _copied(self) -> set[WorkloadId]:
        return {copy.workload_id for copy in self.remote.copies_of_home()}

    def _is_cloned(self, node_id: NodeId, container: Container) -> bool:
        """Also a copy that the remote cluster has restored from an old snapshot."""
        if node_id == FEDERATED and self.remote.invariants.losses.ever:
            return not self.invariants.mirror.accounts_for(node_id, container.workload_id)
        return super()._is_cloned(node_id, container)

    def _remote_copy_starts(self, copy: Container) -> None:
        self.invariants.container_starts(NodeId(FEDERATED), copy, by_agent=True)
        if why := self.copies.dissent(copy):
            self.invariants.fail("consent", f"{copy.workload_id} runs remotely {why}")

    def _connect_remote(self, process: SimProcess) -> SimRemote:
        return self.remote_type(
            self.remote.network,
            process,
            scheduler_names(self.remote.plan.shape),
            rng(self.plan.seed, FEDERATED, "remote"),
            self.token,
            home=self.cluster,
            planned=self.remote.planned,
        )


def _spec(seed: int, workload_id: WorkloadId, revision: Revision) -> control_pb2.WorkloadSpec:
    return spec_of(seed, workload_id, variant_of(revision), offloads=True)
