"""Checks of workloads in the remote cluster.

A remote copy of a home workload is shown to the checks of the home cluster as a container of the federated
node, so that they count the copies of both clusters together.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from persys.core.nodes import closed_because
from persys.core.placement.tiers import needs_on_any_tier
from persys.federation.mapping import HOME_CLUSTER, HOME_REVISION, Names
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Node
from persys.model.placement import Offload, Resources
from persys.model.workload import Workload
from persys.sim.checks.acknowledged import UserRequest, state_of
from persys.sim.checks.context import Probe, Violation
from persys.sim.checks.safety import Invariants
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace
from persys.sim.fakes.docker import Container
from persys.store import keys
from persys.store.port import Record, Unit
from persys.wire.gen.control.v1 import control_pb2

SpecOf = Callable[[WorkloadId, Revision], control_pb2.WorkloadSpec]


class RemoteCopies:
    """The copies of home workloads in the remote cluster, by container."""

    def __init__(self, names: Names, spec_of: SpecOf) -> None:
        """`spec_of` returns the spec that home users applied."""
        self.names = names
        self._spec_of = spec_of
        self._home_revisions: dict[tuple[WorkloadId, Revision], Revision] = {}
        self._shown: dict[str, Container] = {}

    def stored(self, workload: Workload) -> None:
        """The remote cluster stored a home workload."""
        revision = Revision(workload.metadata.get(HOME_REVISION, ""))
        self._home_revisions[(workload.id, workload.revision)] = revision

    def of(self, container: Container) -> Container | None:
        """The container as one of the home cluster. None: the workload is not from there."""
        local = self.names.local(container.workload_id)
        if local is None:
            return None
        if container.id not in self._shown:
            revision = self._home_revisions[(container.workload_id, container.revision)]
            self._shown[container.id] = Container(
                container.id,
                local,
                revision,
                container.epoch,
                container.spec,
                self._spec_of(local, revision).stop_after_seconds,
                container.kind,
                container.holds_data,
            )
        return self._shown[container.id]

    def dissent(self, copy: Container) -> str:
        """Why the rules of the home workload do not allow it in the remote cluster; "" if they do."""
        rules = self._spec_of(copy.workload_id, copy.revision).placement
        if rules.offload not in (Offload.WHEN_FULL, Offload.PREFER):
            return "without consent"
        if copy.holds_data and not rules.offload_data:
            return "with data and without consent to offload data"
        return ""


class RemoteInvariants(Invariants):
    """The checks of the remote cluster. Its user is the home cluster, which checks what it requests."""

    def __init__(
        self,
        probe: Probe,
        trace: Trace,
        copies: RemoteCopies,
        *,
        lease_seconds: float,
        failed: Callable[[Violation], None],
        starts: Callable[[Container], None],
    ) -> None:
        """`starts` is called for each start of a copy of a home workload."""
        super().__init__(probe, trace, lease_seconds=lease_seconds, failed=failed)
        self._copies = copies
        self._starts = starts
        self.container_starts = self._container_starts

    def _container_starts(self, node_id: NodeId, container: Container, *, by_agent: bool) -> None:
        self._containers.container_starts(node_id, container, by_agent=by_agent)
        copy = self._copies.of(container)
        if copy is not None and self.has_record(node_id, container):
            self._starts(copy)

    def has_record(self, node_id: NodeId, container: Container) -> bool:
        """Not for a copy from before a loss of the store, which only an operator removes.

        An old copy without data that the remote cluster removes from a lost node does not count either.
        """
        copy = (node_id, container.workload_id)
        if copy in self._facts.unaccounted or copy in self.mirror.orphans():
            return False
        return container.holds_data or self.mirror.tombstone(*copy) is None

    def live_copies(self) -> list[Container]:
        """The running copies of home workloads."""
        found = (
            self._copies.of(container)
            for node_id, containers in self._facts.probe.live().items()
            for container in containers
            if self.has_record(node_id, container)
        )
        return [copy for copy in found if copy is not None]

    def received(self, method: str, request: Any) -> None:
        """A scheduler of the remote cluster receives a call."""
        if method in ("ApplyWorkload", "DeleteWorkload") and self._is_from_home(
            request.workload_id
        ):
            self.requested(WorkloadId(request.workload_id), UserRequest())
            if method == "DeleteWorkload":
                self._facts.intents.deleted.add(WorkloadId(request.workload_id))

    def committed(self, process: SimProcess, units: Sequence[Unit], leader: Record | None) -> None:
        super().committed(process, units, leader)
        for unit in units:
            for key in unit.puts:
                workload = self.mirror.workloads.get(key)
                if workload is not None and self._is_from_home(workload.id):
                    self._copies.stored(workload)
                    self._allow(workload)
                    self._check_no_loop(workload)

    def _allow(self, workload: Workload) -> None:
        """Whether the home cluster wants this state is checked there."""
        allowed = self._facts.intents.allowed
        allowed[workload.id] = allowed[workload.id] | {state_of(workload), None}

    def _check_no_loop(self, workload: Workload) -> None:
        if workload.rules.offload is not Offload.NEVER or HOME_CLUSTER not in workload.metadata:
            self.fail("loop", f"{workload.id} came from another cluster and may be offloaded again")

    def _check_intent(self, workload_id: WorkloadId) -> None:
        if not self._is_from_home(workload_id):
            super()._check_intent(workload_id)

    def _is_from_home(self, workload_id: str) -> bool:
        return self._copies.names.local(workload_id) is not None


def waiting(home: StoreMirror, remote: StoreMirror, node_id: NodeId) -> Iterator[str]:
    """Workloads that wait although they may be offloaded and the remote cluster has capacity."""
    node = home.nodes.get(keys.node_key(node_id))
    if node is None or closed_because(node) or remote.orphans() or home.orphans():
        return
    offered = free_on(home, node)
    for workload in home.workloads.values():
        status, needs = home.workload_status(workload.id), needs_on_any_tier(workload)
        if status is None or status.code != "Unplaceable":
            continue
        if not needs.tiers.offload or needs.host_ports:
            continue
        if home.assignment(workload.id) is not None or not needs.resources.fits_in(offered):
            continue
        for other in remote.nodes.values():
            if not closed_because(other) and needs.resources.fits_in(free_on(remote, other)):
                yield f"{workload.id} waits, but {other.id} has capacity"
                break


def free_on(mirror: StoreMirror, node: Node) -> Resources:
    free = node.capabilities.allocatable
    for held in mirror.holds(node.id).values():
        free = free - held.reserved
    return free


def leftovers(
    home: StoreMirror,
    remote: StoreMirror,
    remote_keys: Iterable[str],
    names: Names,
    node_id: NodeId,
) -> Iterator[str]:
    """Workloads and secrets of the home cluster in the remote cluster that it does not need any more."""
    orphans = home.orphans()

    def is_left(local: WorkloadId | None) -> bool:
        if local is None or (node_id, local) in orphans:
            return False
        return not home.accounts_for(node_id, local)

    for workload in remote.workloads.values():
        if is_left(names.local(workload.id)):
            yield f"{workload.id} is left in the remote cluster"
    for key in remote_keys:
        name = key.removeprefix(keys.SECRETS)
        if is_left(names.local(name.rpartition(".")[0])):
            yield f"secret {name} is left in the remote cluster"
