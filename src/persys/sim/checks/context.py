"""The state that all safety checks share: stored records, user requests, and access to the cluster."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from persys.agent.journal.records import Entry
from persys.core.placement.index.node_index import NodeIndex
from persys.model.ids import NodeId, WorkloadId
from persys.sim.checks.acknowledged import AllowedStates
from persys.sim.checks.agent_contact import AgentContacts
from persys.sim.checks.store_loss import StoreLoss
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace
from persys.sim.fakes.docker import Container


@dataclass(frozen=True, slots=True)
class Violation:
    at: float
    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


@dataclass(frozen=True, slots=True)
class Probe:
    """Reads the simulated cluster without side effects."""

    time: Callable[[], float]
    live: Callable[[], Mapping[NodeId, list[Container]]]  # the running containers per node
    journal_entry: Callable[[NodeId, WorkloadId], Entry | None]  # an entry of an agent's journal
    holds: Callable[[NodeId], Iterable[WorkloadId]]  # workloads with anything on a node
    keeps: Callable[[NodeId], Iterable[WorkloadId]]  # workloads that its agent must keep
    silent_since: Callable[[NodeId], float | None]  # since when its runtimes do not respond
    is_cloned: Callable[[NodeId, Container], bool]  # it comes from the journal of a cloned node
    reserved_by: Callable[[SimProcess], NodeIndex | None]  # the reservations in a leader's memory


@dataclass(slots=True, eq=False)
class Facts:
    probe: Probe
    trace: Trace
    failed: Callable[[Violation], None]
    mirror: StoreMirror = field(default_factory=StoreMirror)
    contacts: AgentContacts = field(default_factory=AgentContacts)
    intents: AllowedStates = field(default_factory=AllowedStates)
    unaccounted: set[tuple[NodeId, WorkloadId]] = field(
        default_factory=set
    )  # copies without records
    losses: StoreLoss = field(init=False)

    def __post_init__(self) -> None:
        self.losses = StoreLoss(
            self.mirror, self.intents, self.probe.time, self.fail, self.probe.keeps
        )

    def fail(self, promise: str, text: str) -> None:
        self.failed(Violation(self.probe.time(), promise, text))

    def fail_if(self, promise: str, problem: str) -> None:
        if problem:
            self.fail(promise, problem)
