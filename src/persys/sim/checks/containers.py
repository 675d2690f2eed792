"""Checks of containers and volumes: starts, stops and removals are allowed, and data has one running copy."""

from persys.core.placement.requirements import holds_data
from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Desired, Order
from persys.sim.checks.context import Facts
from persys.sim.fakes.docker import Container

# A container that is stopped and started again may exit in between; then it is restarted.
STOPPING_SECONDS = 15.0
NEVER = float("-inf")


class ContainerChecks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._stopping_alone: set[str] = set()  # containers stopped by stop_after
        self._started: dict[str, float] = {}  # first start of each container
        self._finished: dict[str, float] = {}  # exit time of containers that exited with 0

    def start_requested(self, node_id: NodeId, order: Order) -> None:
        """An agent starts a workload: the journal must say so, or a crash would start it twice."""
        entry = self._facts.probe.journal_entry(node_id, order.workload_id)
        if entry is None or (entry.order == order and not entry.progress.launching):
            text = f"{node_id} starts {order.workload_id} without a journal entry"
            self._facts.fail("commit before act", text)

    def stop_requested(self, node_id: NodeId, order: Order, container_id: str) -> None:
        """A stop takes time: whether it was allowed is decided when it begins."""
        if self._facts.contacts.may_stop(node_id, order.stop_after_seconds):
            self._stopping_alone.add(container_id)

    def container_starts(self, node_id: NodeId, container: Container, *, by_agent: bool) -> None:
        self._facts.trace.add(
            node_id, f"starts {container.id} {container.workload_id} {container.revision}"
        )
        self._started.setdefault(container.id, self._facts.probe.time())
        if by_agent:
            self._check_repeat(node_id, container)
            self._check_accounted(node_id, container)
        self._check_copies(node_id, container)
        self._stopping_alone.discard(container.id)

    def container_stops(self, node_id: NodeId, container: Container, order: Order) -> None:
        """`order` is the one that the agent executes; a newer one may have arrived meanwhile."""
        facts = self._facts
        name = f"{container.workload_id} {container.revision}"
        facts.trace.add(node_id, f"stops {container.id} {name}")
        if order.desired is Desired.RUNNING and order.revision == container.revision:
            if container.id in self._stopping_alone:
                return  # stop_after
            if facts.contacts.may_stop(node_id, order.stop_after_seconds):
                return
            if container.holds_data and facts.probe.is_cloned(node_id, container):
                return  # the original node has the data
            if order.run_deadline_seconds and self._is_run_over(node_id, container, order):
                return
            facts.fail("5 nothing stops", f"{name} was stopped on {node_id}, but must run")
        elif (order.workload_id, order.revision, order.desired) not in facts.mirror.wanted and (
            order.desired is not Desired.DELETED
        ):
            facts.fail("5 nothing stops", f"{name} was stopped on {node_id} without a stored order")

    def _is_run_over(self, node_id: NodeId, container: Container, order: Order) -> bool:
        """Whether the deadline of its run is over by the clock of its agent, which enforces it."""
        if node_id in self._facts.contacts.clock_changed:
            return True
        started_at = self._started.get(container.id, NEVER)
        return self._facts.probe.time() - started_at >= order.run_deadline_seconds - 1

    def container_ended(self, node_id: NodeId, container: Container) -> None:
        self._facts.trace.add(
            node_id, f"{container.id} {container.workload_id} exits {container.exit_code}"
        )
        if container.exit_code == 0:
            self._finished[container.id] = self._facts.probe.time()

    def volumes_go(self, node_id: NodeId, workload_id: WorkloadId, names: frozenset[str]) -> None:
        facts = self._facts
        facts.trace.add(node_id, f"removes volumes {sorted(names)} of {workload_id}")
        workload = facts.mirror.workload(workload_id)
        if (
            workload is not None
            and workload.desired is not Desired.DELETED
            and holds_data(workload)
        ):
            bound = facts.mirror.assignment(workload_id)
            if bound is not None and bound.node_id == node_id:
                facts.fail("10 data", f"{workload_id} lost {', '.join(names)} on {node_id}")
        if not self._was_deleted(workload_id):
            text = f"{workload_id} was never deleted and lost {', '.join(names)} on {node_id}"
            facts.fail("10 data", text)

    def _was_deleted(self, workload_id: WorkloadId) -> bool:
        """By a user, or as a member by its set or run."""
        mirror = self._facts.mirror
        if workload_id not in mirror.memberships:
            return workload_id in self._facts.intents.deleted
        states = mirror.stored[workload_id]
        return workload_id in mirror.dropped or any(
            state is not None and state.desired is Desired.DELETED for state in states
        )

    def check_all_accounted(self) -> None:
        """Every running container has a record."""
        for node_id, containers in self._facts.probe.live().items():
            for container in containers:
                self._check_accounted(node_id, container)

    def _check_accounted(self, node_id: NodeId, container: Container) -> None:
        facts = self._facts
        copy = (node_id, container.workload_id)
        if facts.mirror.accounts_for(*copy):
            facts.unaccounted.discard(copy)
        elif copy not in facts.unaccounted and not facts.probe.is_cloned(node_id, container):
            text = f"{container.workload_id} runs on {node_id} without a record"
            facts.fail("3 reservation", text)

    def _check_copies(self, node_id: NodeId, container: Container) -> None:
        facts, is_cloned = self._facts, self._facts.probe.is_cloned
        if not container.holds_data or is_cloned(node_id, container):
            return
        if (node_id, container.workload_id) in facts.unaccounted:
            return  # started by an order whose records were lost
        for other_id, others in facts.probe.live().items():
            for other in others:
                if (
                    other is not container
                    and other.holds_data
                    and other.workload_id == container.workload_id
                    and (other_id, other.workload_id) not in facts.unaccounted
                    and not is_cloned(other_id, other)
                    and not facts.contacts.was_blocked(other_id, other)
                    and not facts.contacts.was_blocked(node_id, container)
                ):
                    text = f"{container.workload_id} starts on {node_id} and runs on {other_id}"
                    facts.fail("4 one copy of data", text)

    def _check_repeat(self, node_id: NodeId, container: Container) -> None:
        finished_at = self._finished.get(container.id)
        requested_at = self._facts.intents.asked_at
        if (
            finished_at is not None
            and container.spec.restart.runs_to_completion
            and requested_at.get(container.workload_id, NEVER) < finished_at - STOPPING_SECONDS
            and container.id not in self._stopping_alone  # it exited during a stop
        ):
            text = f"{container.workload_id} had run to completion on {node_id} and starts again"
            self._facts.fail("6 no restart", text)
