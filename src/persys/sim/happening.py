"""The plan of a run: what users and misfortune do, and when. Plain data, to be shrunk and replayed."""

import msgspec
from msgspec import Struct

SCHEDULER = "scheduler"
USER = "user"
ANYBODY = "anybody"


class Shape(Struct, frozen=True):
    """How large a run is."""

    nodes: int = 5
    workloads: int = 24
    minutes: float = 12.0
    schedulers: int = 0  # 0: as the seed has it
    streams: float = (
        -1.0
    )  # share of agents that use a control stream; less than 0: as the seed has it


class Happening(Struct, frozen=True, omit_defaults=True):
    """`target` is a workload, a node or a part. `kind` says what `seconds`, `amount` and `word` mean."""

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
    happenings: tuple[Happening, ...]

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self))


def plan_from(data: bytes) -> Plan:
    return msgspec.json.decode(data, type=Plan)
