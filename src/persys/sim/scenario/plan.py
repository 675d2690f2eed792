"""The plan of a run: user requests and faults with their times. Plain data, to shrink and replay."""

import msgspec
from msgspec import Struct

from persys.sim.engine.trace import rng

SCHEDULER = "scheduler"
USER = "user"
ANY_AGENT = "any agent"
REMOTE = "remote"  # the second cluster: its id, and the prefix of its names
FEDERATED = "cloud"  # the node of the first cluster whose runtime is the second cluster


class Shape(Struct, frozen=True):
    """The size of a run."""

    nodes: int = 5
    workloads: int = 24
    minutes: float = 12.0
    schedulers: int = 0  # 0: chosen by the seed
    # Share of agents that use a control stream; negative: chosen by the seed.
    streams: float = -1.0
    remote_nodes: int = 0  # of a second cluster, which the first one uses as a federated node
    remote_schedulers: int = 0  # 0: chosen by the seed
    pool_machines: int = 0  # the maximum of a node pool; 0: there is none
    sets: int = 0
    jobs: int = 0
    site: str = ""  # the prefix of the names; empty for the first cluster

    def name(self, name: str) -> str:
        return f"{self.site}-{name}" if self.site else name


CROWDED_FROM = 50  # workloads per node


def is_crowded(shape: Shape) -> bool:
    """Whether nodes have hundreds of workloads, so that batched work takes several batches."""
    return shape.workloads / shape.nodes >= CROWDED_FROM


def node_size(shape: Shape) -> int:
    """The size factor of the nodes. Two thirds of the workloads per node fit on a crowded node."""
    return round(shape.workloads / shape.nodes / 1.5) if is_crowded(shape) else 1


class PlannedEvent(Struct, frozen=True, omit_defaults=True):
    """`target` is a workload, a node or a component. `kind` defines `seconds`, `amount` and `word`."""

    at: float
    kind: str
    target: str = ""
    seconds: float = 0.0
    amount: float = 0.0
    word: str = ""

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        details = [self.word] if self.word else []
        details += [f"{self.amount:g}"] if self.amount else []
        details += [f"for {self.seconds:.1f}s"] if self.seconds else []
        return (
            f"{minutes:3.0f}:{seconds:06.3f}  {self.kind:<14} {self.target:<10} {' '.join(details)}"
        )


class Plan(Struct, frozen=True):
    seed: int
    shape: Shape
    happenings: tuple[PlannedEvent, ...]

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self))


def plan_from(data: bytes) -> Plan:
    return msgspec.json.decode(data, type=Plan)


def node_names(shape: Shape) -> list[str]:
    return [shape.name(f"n{number}") for number in range(1, shape.nodes + 1)]


def remote_shape(shape: Shape) -> Shape:
    """The shape of the second cluster. Its users apply no workloads of their own."""
    return Shape(
        nodes=shape.remote_nodes,
        workloads=0,
        minutes=shape.minutes,
        schedulers=shape.remote_schedulers,
        streams=shape.streams,
        site=REMOTE,
    )


def set_names(shape: Shape) -> list[str]:
    return [f"web{number}" for number in range(shape.sets)]


def job_names(shape: Shape) -> list[str]:
    return [f"job{number}" for number in range(shape.jobs)]


def scheduler_names(shape: Shape) -> list[str]:
    if shape.schedulers <= 1:
        return [shape.name(SCHEDULER)]
    return [shape.name(f"s{number}") for number in range(1, shape.schedulers + 1)]


def streaming_nodes(seed: int, shape: Shape) -> frozenset[str]:
    random = rng(seed, "links")
    return frozenset(name for name in node_names(shape) if random.random() < shape.streams)


def nodes_behind_nat(seed: int, shape: Shape) -> frozenset[str]:
    """Some of the nodes with a control stream, in some seeds."""
    random = rng(seed, "nat")
    share = random.choice((0.0, 0.5, 1.0))
    streaming = sorted(streaming_nodes(seed, shape))
    return frozenset(name for name in streaming if random.random() < share)
