"""What must hold when the store has lost all it held, until an operator has ruled what becomes of it.

A scheduler that remembers writes nothing but its own name, and no copy goes by a word that is not on record.
A ruling gives back what it promises: a rebuild all that reachable agents keep and a scheduler remembers, a
restore also what the snapshot had.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from persys.model.ids import NodeId, WorkloadId
from persys.sim.intents import Intents, State, Word, state_of
from persys.sim.life import Life
from persys.sim.mirror import Mirror
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.control.v1 import control_pb2

# A word that was on record before the loss may still be on its way so long after it.
STALE_ORDER_SECONDS = 60.0
RULINGS = frozenset({"RebuildFromAgents", "AcceptEmpty", "RestoreSnapshot"})


@dataclass(slots=True)
class Losses:
    """`kept` gives what the agent of a node has in its journal and is to keep."""

    mirror: Mirror
    intents: Intents
    time: Callable[[], float]
    fail: Callable[[str, str], None]
    kept: Callable[[NodeId], Iterable[WorkloadId]]
    open: bool = False  # nobody has ruled yet
    asked: bool = False  # an operator rules
    lost_at: float = float("-inf")
    words: dict[WorkloadId, Word] = field(default_factory=dict)  # the last of each workload's user
    remembering: frozenset[str] = frozenset()  # titles of the schedulers that know what was stored
    snapshot: frozenset[WorkloadId] = frozenset()  # what the one to be restored has
    _before: dict[WorkloadId, frozenset[State]] = field(default_factory=dict)

    def lose(self, remembering: frozenset[str]) -> None:
        """The store is empty now."""
        if not self.open:
            self._before = {
                workload_id: self.intents.of(workload_id)
                for workload_id in (each.id for each in self.mirror.workloads.values())
            }
            self.remembering = remembering
        self.remembering &= remembering
        self.open, self.asked, self.lost_at = True, False, self.time()
        self.mirror.lose()
        self.intents.forgive(self.mirror.stored)

    def reopen(self) -> None:
        """A scheduler that had forgotten everything has learnt of the loss only now."""
        if not self.open:
            self.open = True
            self.intents.forgive(self.mirror.stored)

    def committed(self, life: Life, units: Sequence[Unit]) -> None:
        if not self.open or self.asked or life.title not in self.remembering:
            return
        written = {key for unit in units for key in (*unit.puts, *unit.deletes)} - {keys.LEADER}
        if written:
            text = f"{life.title} wrote {min(written)} in a store that had lost everything"
            self.fail("11 recovery", text)

    def check_delete(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """An agent was told to delete: some record must say so, and one of before the loss cannot."""
        doomed_at = self.mirror.doomed.get((node_id, workload_id))
        stale = self.time() < self.lost_at + STALE_ORDER_SECONDS
        if doomed_at is None or (doomed_at < self.lost_at and not stale):
            text = f"{node_id} was told to delete {workload_id}, and no record says so"
            self.fail("11 recovery", text)

    def ruled(self, life: Life, method: str, answer: control_pb2.RecoveryAnswer) -> None:
        """As a scheduler answers: what was brought back must be what can be."""
        if not self.open or not answer.accepted:
            return
        if method != "AcceptEmpty":
            missing = self._missing(life, method, answer.left_out)
            for workload_id, why in sorted(missing.items()):
                self.fail("1 recovered", f"{workload_id} was not brought back, and {why}")
            if method == "RebuildFromAgents" and life.title in self.remembering:
                self._check_remembered()
        self.close()

    def _check_remembered(self) -> None:
        for workload_id, states in sorted(self._before.items()):
            state = state_of(self.mirror.workload(workload_id))
            if state is not None and state not in states:
                text = f"{workload_id} was brought back as {state}, and was acknowledged otherwise"
                self.fail("1 recovered", text)

    def close(self) -> None:
        """It has been ruled; from here on users' words count again, said to what there is now."""
        self.open = self.asked = False
        for workload_id in list(self.intents.allowed):
            now = state_of(self.mirror.workload(workload_id))
            word = self.words.get(workload_id, Word())
            self.intents.begin_anew(workload_id, {now, None}, word)

    @property
    def ever(self) -> bool:
        return self.lost_at > float("-inf")

    def _missing(self, life: Life, method: str, left_out: Sequence[str]) -> dict[WorkloadId, str]:
        """What should have come back and did not, with the reason. What the operator was told of may lack."""
        told = " ".join(left_out)
        found: dict[WorkloadId, str] = {}
        for node in self.mirror.nodes.values():
            if f"node {node.id} gave no answer" not in told:
                found |= dict.fromkeys(self.kept(node.id), f"{node.id} keeps it")
        if method == "RestoreSnapshot":
            found |= dict.fromkeys(self.snapshot, "the snapshot has it")
        elif life.title in self.remembering:
            for workload_id, states in self._before.items():
                if None not in states:
                    found[workload_id] = f"{life.title} remembers it"
        return {
            workload_id: why
            for workload_id, why in found.items()
            if self.mirror.workload(workload_id) is None and f"{workload_id}" not in told
        }
