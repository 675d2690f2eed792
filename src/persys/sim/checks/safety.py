"""Safety checks, run at each step that could violate a promise. The first violation ends the run.

Numbers are those of the promises in the README. Liveness is checked in `settled.py`.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from persys.agent.journal.records import Entry
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import holds_data
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeStatus
from persys.model.placement import Assignment
from persys.model.workload import Desired, Order
from persys.scheduler.ha.leader_key import leader_of
from persys.sim.checks.acknowledged import Intents, Word, state_of
from persys.sim.checks.agent_contact import Contacts
from persys.sim.checks.node_removal import Removals
from persys.sim.checks.reservations import order_problem, release_problem, room_problem
from persys.sim.checks.stale_reads import Reads
from persys.sim.checks.store_loss import RULINGS, Losses
from persys.sim.checks.store_mirror import Mirror, changed_keys
from persys.sim.engine.process import Life
from persys.sim.engine.trace import Trace
from persys.sim.fakes.docker import Container
from persys.store import keys
from persys.store.port import Record, Unit
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.metadata_keys import ROLE

# An order that was correct when it was sent may be executed this much later.
STALE_ORDER_SECONDS = 60.0
JUDGING_SECONDS = 12.0
# A container that is stopped and started again may exit in between; then it is restarted.
STOPPING_SECONDS = 15.0
HEARD_MAX = 100
# Until a node reports that its runtimes do not respond, and until earlier decisions are stored.
NOTICE_SECONDS = 12.0
DECIDED_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Violation:
    at: float
    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


@dataclass(slots=True)
class Heard:
    """When a scheduler acknowledged a heartbeat of a node."""

    by: Life
    at: float


class Invariants:
    """Implements docker.Witness; also receives commits, requests and responses."""

    def __init__(
        self,
        time: Callable[[], float],
        trace: Trace,
        *,
        lease_seconds: float,
        failed: Callable[[Violation], None],
        live: Callable[[], Mapping[NodeId, list[Container]]],
        kept: Callable[[NodeId, WorkloadId], Entry | None],
        holds: Callable[[NodeId], Iterable[WorkloadId]],
        keeps: Callable[[NodeId], Iterable[WorkloadId]],
        silent_since: Callable[[NodeId], float | None],
        is_cloned: Callable[[NodeId, Container], bool],
        reserved_by: Callable[[Life], NodeIndex | None],
    ) -> None:
        """`live` returns the running containers per node, `kept` an entry of an agent's journal.

        `holds` returns the workloads with anything on a node, `keeps` those that its agent must keep.
        `silent_since` returns since when the runtimes of a node do not respond. `is_cloned`: the container
        comes from the journal of a cloned node. `reserved_by` returns the reservations in a leader's memory.
        """
        self._time = time
        self._trace = trace
        self._lease_seconds = lease_seconds
        self._failed = failed
        self._live = live
        self._kept = kept
        self._holds = holds
        self._silent_since = silent_since
        self._is_cloned = is_cloned
        self._reserved_by = reserved_by
        # By request: the epoch and the cluster that the agent knew when it arrived.
        self._known: dict[int, tuple[int, str]] = {}
        self.mirror = Mirror()
        self.contacts = Contacts()
        self.intents = Intents()
        self.given_up: set[tuple[NodeId, WorkloadId]] = set()  # copies without records
        self.has_given_up = False
        self.losses = Losses(self.mirror, self.intents, time, self.fail, keeps)
        self.removals = Removals(self.mirror, time, self.fail)
        self._leader: Life | None = None
        self._leader_since = 0.0
        self.reads = Reads(self.mirror)
        self._heard: dict[NodeId, deque[Heard]] = {}
        self._stopping_alone: set[str] = set()  # containers stopped by stop_after
        self._finished: dict[str, float] = {}  # exit time of containers that exited with 0

    def fail(self, promise: str, text: str) -> None:
        self._failed(Violation(self._time(), promise, text))

    def _fail_if(self, promise: str, problem: str) -> None:
        if problem:
            self.fail(promise, problem)

    # Commits

    def committed(self, life: Life, units: Sequence[Unit], leader: Record | None) -> None:
        """`leader` is the leader key before the commit."""
        self._check_fence(life, units, leader)
        self._trace.add(life.title, f"commits {changed_keys(units)}")
        if (node_index := self._reserved_by(life)) is not None and not self.losses.open:
            self._fail_if("3 released early", release_problem(self.mirror, node_index, units))
        self.losses.committed(life, units)
        before = dict(self.mirror.assignments)
        nodes_before = dict(self.mirror.nodes)
        buried_before = set(self.mirror.tombstones)
        touched = self.mirror.take(units, self._time())
        for key in sorted(nodes_before.keys() - self.mirror.nodes.keys()):
            self.give_up(nodes_before[key].id)
        self.removals.committed(touched, nodes_before)
        self.reads.committed(
            sorted(
                WorkloadId(key.removeprefix(keys.WORKLOADS))
                for key in touched
                if key.startswith(keys.WORKLOADS)
            ),
            self._time(),
        )
        crowded: set[NodeId] = set()
        for key in sorted(touched):
            if key.startswith(keys.WORKLOADS):
                self._check_intent(WorkloadId(key.removeprefix(keys.WORKLOADS)))
            elif key.startswith(keys.ASSIGNMENTS):
                crowded |= self._check_assignment(
                    life, before.get(key), self.mirror.assignments.get(key)
                )
            elif key in self.mirror.nodes:
                node = self.mirror.nodes[key]
                old = nodes_before.get(key)
                if node.status is NodeStatus.NOT_READY and (
                    old is None or old.status is not NodeStatus.NOT_READY
                ):
                    self._check_silence(life, node.id)
        crowded |= {
            buried.assignment.node_id
            for key, buried in self.mirror.tombstones.items()
            if key in touched
        }
        for node_id in sorted(crowded):
            self._fail_if("3 reservation", room_problem(self.mirror, node_id))
        self._check_buried(touched, before, buried_before)
        for node_id, containers in self._live().items():
            for container in containers:
                self._check_accounted(node_id, container)

    def _check_buried(
        self,
        touched: Collection[str],
        bound_before: Mapping[str, Assignment],
        buried_before: Collection[str],
    ) -> None:
        """A tombstone is written only for a node with an assignment, or for found copies in a recovery."""
        for key, buried in self.mirror.tombstones.items():
            if key not in touched or key in buried_before or self.losses.open:
                continue
            copy = buried.assignment
            new = self.mirror.assignment(copy.workload_id)
            if new is not None and new.node_id == copy.node_id:
                text = f"{copy.workload_id} has a tombstone and an assignment on {copy.node_id}"
                self.fail("3 reservation", text)
            old = bound_before.get(keys.assignment_key(copy.workload_id))
            if old is None or old.node_id != copy.node_id:
                text = f"{copy.workload_id} has a tombstone on {copy.node_id}, never assigned there"
                self.fail("11 recovery", text)

    def give_up(self, node_id: NodeId) -> None:
        """The copies that the node has now need no records any more."""
        self.has_given_up = True
        self.given_up |= {(node_id, workload_id) for workload_id in self._holds(node_id)}

    def store_lost(self, nodes: Iterable[NodeId], remembering: frozenset[str]) -> None:
        """`remembering`: the schedulers with the lost records in memory."""
        for node_id in nodes:
            self.give_up(node_id)
        self.losses.lose(remembering)
        self.removals.removed.clear()  # an older snapshot may contain them
        self.reads.forget()

    def _check_fence(self, life: Life, units: Sequence[Unit], leader: Record | None) -> None:
        if any(keys.LEADER in unit.puts for unit in units):
            if self._leader is not life:
                self._leader_since = self._time()
            self._leader = life
        elif units and (leader is None or leader_of(leader).name != life.title):
            led = leader_of(leader).name if leader is not None else "none"
            text = f"{life.title} wrote {sorted(units[0].puts)}, but the leader is {led}"
            self.fail("fence", text)

    def _check_intent(self, workload_id: WorkloadId) -> None:
        state = state_of(self.mirror.workload(workload_id))
        if state not in self.intents.of(workload_id):
            self.fail(
                "1 acknowledged", f"{workload_id} is stored as {state}, which no user requested"
            )

    def _check_assignment(
        self, life: Life, old: Assignment | None, new: Assignment | None
    ) -> set[NodeId]:
        if new is None:
            return set()
        self._check_epoch(old, new)
        if old is None or old.node_id != new.node_id:
            self._check_answering(life, new)
        if (
            old is not None
            and old.node_id != new.node_id
            and not self.mirror.tombstone(old.node_id, new.workload_id)
            and any(each.workload_id == new.workload_id for each in self._live()[old.node_id])
        ):
            self.fail("3 reservation", f"{new.workload_id} left {old.node_id} without a tombstone")
        if old is not None and old.node_id != new.node_id:
            self._check_stopped_alone(old)
        return {new.node_id}

    def _check_epoch(self, old: Assignment | None, new: Assignment) -> None:
        """A new assignment has a higher epoch than all earlier ones, also after a deletion."""
        highest = self.mirror.epochs.get(new.workload_id, 0)
        is_same = old is not None and (old.node_id, old.epoch) == (new.node_id, new.epoch)
        if not is_same and new.epoch <= highest and not self.losses.open:
            text = f"{new.workload_id} assigned to {new.node_id}: epoch {new.epoch} after {highest}"
            self.fail("epoch", text)
        self.mirror.epochs[new.workload_id] = max(highest, new.epoch)

    def _check_answering(self, life: Life, new: Assignment) -> None:
        """No assignment to a node that has reported that its runtimes do not respond."""
        since, now = self._silent_since(new.node_id), self._time()
        if since is None or self.losses.open:
            return
        for heard in self._heard.get(new.node_id, ()):
            if heard.by is life and since + NOTICE_SECONDS <= heard.at <= now - DECIDED_SECONDS:
                silent = f"runtimes of {new.node_id} not responding for {now - since:.0f}s"
                self.fail("unhealthy node", f"{new.workload_id} assigned, {silent}")
                return

    def _check_stopped_alone(self, old: Assignment) -> None:
        """A workload with stop_after that leaves an unreachable node must be stopped there by now."""
        if self.silent_for(old.node_id) < self._lease_seconds:
            return
        for container in self._live()[old.node_id]:
            if (
                container.workload_id == old.workload_id
                and container.stop_after_seconds
                and not self.contacts.excuses(old.node_id, container)
            ):
                text = f"{old.workload_id} still runs on the unreachable {old.node_id} it leaves"
                self.fail("4 stopped alone", text)

    def silent_for(self, node_id: NodeId) -> float:
        """Seconds since a scheduler acknowledged a heartbeat of the node."""
        heard = self._heard.get(node_id)
        return self._time() - heard[-1].at if heard else self._time()

    def _check_silence(self, life: Life, node_id: NodeId) -> None:
        """A node is marked not ready only after its lease; heartbeats during the commit do not count."""
        now = self._time()
        led = now - self._leader_since
        if led < self._lease_seconds - 1:
            self.fail("lease", f"{node_id} marked not ready by a leader since {led:.1f}s")
        for heard in self._heard.get(node_id, ()):
            silent = now - heard.at
            if heard.by is life and JUDGING_SECONDS < silent < self._lease_seconds - 1:
                self.fail("lease", f"{node_id} marked not ready {silent:.1f}s after a heartbeat")

    # Users

    def asks(self, workload_id: WorkloadId, word: Word) -> None:
        self.losses.words[workload_id] = word
        self.intents.ask(workload_id, word, now=self._time())

    def answered(
        self, life: Life, method: str, request: Any, answer: Any, beside: Mapping[str, str]
    ) -> None:
        """`beside`: response metadata with the role of the scheduler and the data age."""
        if method == "Heartbeat" and answer.acknowledged:
            heard = self._heard.setdefault(NodeId(request.node_id), deque(maxlen=HEARD_MAX))
            heard.append(Heard(life, self._time()))
        if method in RULINGS:
            self.losses.ruled(life, method, answer)
        if isinstance(
            answer, control_pb2.ApplyWorkloadResponse | control_pb2.DeleteWorkloadResponse
        ):
            if not answer.success or self.losses.open:
                return  # until the loss is noticed, responses may reflect the state before it
            workload_id = WorkloadId(request.workload_id)
            self.intents.acknowledge(workload_id, self.losses.words[workload_id])
            self._check_intent(workload_id)
        if method in ("GetNode", "ListNodes") and ROLE not in beside:
            for node in answer.nodes if method == "ListNodes" else [answer.node]:
                if node.HasField("drain") and node.drain.state == "drained":
                    self._check_empty(NodeId(node.node_id))

    def check_read(self, answer: control_pb2.ListWorkloadsResponse, age_seconds: float) -> None:
        problem = self.reads.too_old(answer.workloads, age_seconds=age_seconds, now=self._time())
        if problem:
            self.fail("stale read", problem)

    def _check_empty(self, node_id: NodeId) -> None:
        if found := self._live().get(node_id):
            names = ", ".join(each.workload_id for each in found)
            self.fail("12 drained", f"{node_id} is reported as drained and runs {names}")

    # Orders

    def ordered(self, node_id: NodeId, request: Any) -> None:
        """An order has reached an agent: it must follow from a commit."""
        if isinstance(request, agent_pb2.ApplyWorkloadRequest | agent_pb2.DeleteWorkloadRequest):
            entry = self._kept(node_id, WorkloadId(request.id))
            if entry is not None:
                self._known[id(request)] = (entry.order.epoch, entry.cluster_uid)
        if isinstance(request, agent_pb2.ApplyWorkloadRequest):
            workload_id = WorkloadId(request.id)
            self._trace.add(
                node_id,
                f"receives apply {workload_id} {request.revision_id} epoch {request.epoch}",
            )
            desired = (
                Desired.STOPPED
                if request.desired_state == agent_pb2.DESIRED_STATE_STOPPED
                else Desired.RUNNING
            )
            order = (workload_id, request.revision_id, desired)
            if order not in self.mirror.wanted:
                self.fail(
                    "commit before act", f"{node_id} received {order}, which was never stored"
                )
            if (workload_id, node_id, request.epoch) not in self.mirror.bound:
                text = f"{node_id} received {workload_id} epoch {request.epoch}, never stored"
                self.fail("commit before act", text)
            self._fail_if("3 reservation", order_problem(self.mirror, node_id, request))
        elif isinstance(request, agent_pb2.DeleteWorkloadRequest):
            workload_id = WorkloadId(request.id)
            self._trace.add(node_id, f"receives delete {workload_id} epoch {request.epoch}")
            self._check_delete(node_id, workload_id, request.epoch)
            self.losses.check_delete(node_id, workload_id)

    def obeyed(self, node_id: NodeId, request: Any, answer: Any) -> None:
        """An agent accepted an order: it must be in the journal, and not older than the entry before it."""
        known, cluster_uid = self._known.pop(id(request), (0, ""))
        workload_id = WorkloadId(getattr(request, "id", ""))
        entry = self._kept(node_id, workload_id)
        match answer:
            case (
                agent_pb2.ApplyWorkloadResponse(applied=True)
                | agent_pb2.ApplyWorkloadResponse(skipped=True)
            ):
                lost = entry is None or entry.order.epoch < request.epoch
            case agent_pb2.DeleteWorkloadResponse(success=True) if known:
                lost = entry is not None and entry.order.desired is not Desired.DELETED
            case _:
                return
        same_cluster = entry is None or entry.cluster_uid == cluster_uid
        if 0 < request.epoch < known and same_cluster:
            text = f"{node_id} accepted {workload_id} epoch {request.epoch} after epoch {known}"
            self.fail("epoch", text)
        elif lost:
            self.fail("1 acknowledged", f"{node_id} accepted {workload_id} and did not store it")

    def _check_delete(self, node_id: NodeId, workload_id: WorkloadId, epoch: int) -> None:
        workload, bound = self.mirror.workload(workload_id), self.mirror.assignment(workload_id)
        if (
            workload is not None
            and workload.desired is not Desired.DELETED
            and bound is not None
            and bound.node_id == node_id
            and bound.epoch <= epoch
            and self._time() - self.mirror.changed_at[workload_id] > STALE_ORDER_SECONDS
        ):
            self.fail(
                "5 nothing stops", f"{node_id} received delete of {workload_id}, which must stay"
            )

    # Containers

    def start_asked(self, node_id: NodeId, order: Order) -> None:
        """An agent starts a workload: the journal must say so, or a crash would start it twice."""
        entry = self._kept(node_id, order.workload_id)
        if entry is None or (entry.order == order and not entry.progress.launching):
            text = f"{node_id} starts {order.workload_id} without a journal entry"
            self.fail("commit before act", text)

    def stop_asked(self, node_id: NodeId, order: Order, container_id: str) -> None:
        """A stop takes time: whether it was allowed is decided when it begins."""
        if self.contacts.allows_to_stop(node_id, order.stop_after_seconds):
            self._stopping_alone.add(container_id)

    def container_starts(self, node_id: NodeId, container: Container, *, by_agent: bool) -> None:
        self._trace.add(
            node_id, f"starts {container.id} {container.workload_id} {container.revision}"
        )
        self._check_copies(node_id, container)
        if by_agent:
            self._check_repeat(node_id, container)
            self._check_accounted(node_id, container)
        self._stopping_alone.discard(container.id)

    def container_stops(self, node_id: NodeId, container: Container, order: Order) -> None:
        """`order` is the one that the agent executes; a newer one may have arrived meanwhile."""
        name = f"{container.workload_id} {container.revision}"
        self._trace.add(node_id, f"stops {container.id} {name}")
        if order.desired is Desired.RUNNING and order.revision == container.revision:
            if container.id in self._stopping_alone:
                return  # stop_after
            if self.contacts.allows_to_stop(node_id, order.stop_after_seconds):
                return
            if container.holds_data and self._is_cloned(node_id, container):
                return  # the original node has the data
            self.fail("5 nothing stops", f"{name} was stopped on {node_id}, but must run")
        elif (order.workload_id, order.revision, order.desired) not in self.mirror.wanted and (
            order.desired is not Desired.DELETED
        ):
            self.fail("5 nothing stops", f"{name} was stopped on {node_id} without a stored order")

    def heard(self, node_id: NodeId, sent: float) -> None:
        self.contacts.heard(node_id, sent)

    def joins(self, node_id: NodeId) -> None:
        self.removals.joining[node_id] = self._time()

    def container_ended(self, node_id: NodeId, container: Container) -> None:
        self._trace.add(
            node_id, f"{container.id} {container.workload_id} exits {container.exit_code}"
        )
        if container.exit_code == 0:
            self._finished[container.id] = self._time()

    def volumes_go(self, node_id: NodeId, workload_id: WorkloadId, names: frozenset[str]) -> None:
        self._trace.add(node_id, f"removes volumes {sorted(names)} of {workload_id}")
        workload = self.mirror.workload(workload_id)
        if (
            workload is not None
            and workload.desired is not Desired.DELETED
            and holds_data(workload)
        ):
            bound = self.mirror.assignment(workload_id)
            if bound is not None and bound.node_id == node_id:
                self.fail("10 data", f"{workload_id} lost {', '.join(names)} on {node_id}")
        if workload_id not in self.intents.deleted:
            text = f"{workload_id} was never deleted and lost {', '.join(names)} on {node_id}"
            self.fail("10 data", text)

    def _check_copies(self, node_id: NodeId, container: Container) -> None:
        if not container.holds_data or self._is_cloned(node_id, container):
            return
        for other_id, others in self._live().items():
            for other in others:
                if (
                    other is not container
                    and other.holds_data
                    and other.workload_id == container.workload_id
                    and (other_id, other.workload_id) not in self.given_up
                    and not self._is_cloned(other_id, other)
                    and not self.contacts.excuses(other_id, other)
                    and not self.contacts.excuses(node_id, container)
                ):
                    text = f"{container.workload_id} starts on {node_id} and runs on {other_id}"
                    self.fail("4 one copy of data", text)

    def _check_repeat(self, node_id: NodeId, container: Container) -> None:
        finished_at = self._finished.get(container.id)
        if (
            finished_at is not None
            and container.spec.restart.runs_to_completion
            and self.intents.asked_at[container.workload_id] < finished_at - STOPPING_SECONDS
            and container.id not in self._stopping_alone  # it exited during a stop
        ):
            text = f"{container.workload_id} had run to completion on {node_id} and starts again"
            self.fail("6 no restart", text)

    def _check_accounted(self, node_id: NodeId, container: Container) -> None:
        copy = (node_id, container.workload_id)
        if self.mirror.accounts_for(*copy):
            self.given_up.discard(copy)
        elif copy not in self.given_up and not self._is_cloned(node_id, container):
            text = f"{container.workload_id} runs on {node_id} without a record"
            self.fail("3 reservation", text)
