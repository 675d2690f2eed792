"""The documents of a spec file: workloads, sets, jobs, services and node pools, with positions of fields."""

from dataclasses import dataclass, field
from typing import ClassVar

from persys.core.bounded_yaml import Node
from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile import job_file, service_file, set_file
from persys.wire.specfile.document import compose_error, located
from persys.wire.specfile.overrides import MissingVariable
from persys.wire.specfile.strict import NOWHERE, Position


@dataclass(frozen=True, slots=True)
class SpecDocument:
    """One workload of a file, and its line (0: unknown)."""

    noun: ClassVar[str] = "workload"
    names: ClassVar[str] = "workload"  # documents with the same `names` cannot share an id

    request: control_pb2.ApplyWorkloadRequest
    line: int
    node: Node
    compose: Node | None = None  # the Compose file that it was made from
    missing: list[MissingVariable] = field(default_factory=list)  # of the Compose file

    @property
    def id(self) -> str:
        return self.request.workload_id

    def located(self, field: str, problem: str) -> tuple[Position, str, str]:
        """The position of an error about a field, or of the nearest parent of it; the field; the error."""
        if not self.line:
            return NOWHERE, field, problem
        if self.compose is not None:
            err = compose_error(InvalidError(field, problem), self.compose)
            return err.at, err.field, err.problem
        at, text = located(self.node, field, problem)
        return at, field, text


@dataclass(frozen=True, slots=True)
class SetDocument:
    """One set of a file, and its line (0: unknown)."""

    noun: ClassVar[str] = "set"
    names: ClassVar[str] = "workload"

    request: control_pb2.ApplySetRequest
    line: int
    node: Node

    @property
    def id(self) -> str:
        return self.request.set.set_id

    def located(self, field: str, problem: str) -> tuple[Position, str, str]:
        name = set_file.key_of(field)
        at, text = located(self.node, name, problem) if self.line else (NOWHERE, problem)
        return at, name, text


@dataclass(frozen=True, slots=True)
class JobDocument:
    """One job of a file, and its line (0: unknown)."""

    noun: ClassVar[str] = "job"
    names: ClassVar[str] = "workload"

    request: control_pb2.ApplyJobRequest
    line: int
    node: Node

    @property
    def id(self) -> str:
        return self.request.job.job_id

    def located(self, field: str, problem: str) -> tuple[Position, str, str]:
        name = job_file.key_of(field)
        at, text = located(self.node, name, problem) if self.line else (NOWHERE, problem)
        return at, name, text


@dataclass(frozen=True, slots=True)
class PoolDocument:
    """One node pool of a file, and its line (0: unknown)."""

    noun: ClassVar[str] = "node pool"
    names: ClassVar[str] = "node pool"

    pool: control_pb2.NodePoolSpec
    line: int
    node: Node

    @property
    def id(self) -> str:
        return self.pool.pool_id

    def located(self, field: str, problem: str) -> tuple[Position, str, str]:
        at, text = located(self.node, field, problem) if self.line else (NOWHERE, problem)
        return at, field, text


@dataclass(frozen=True, slots=True)
class ServiceDocument:
    """One service of a file, and its line (0: unknown)."""

    noun: ClassVar[str] = "service"
    names: ClassVar[str] = "service"

    service: control_pb2.ServiceSpec
    line: int
    node: Node

    @property
    def id(self) -> str:
        return self.service.service_id

    def located(self, field: str, problem: str) -> tuple[Position, str, str]:
        name = service_file.key_of(field)
        at, text = located(self.node, name, problem) if self.line else (NOWHERE, problem)
        return at, name, text


Document = SpecDocument | SetDocument | JobDocument | PoolDocument | ServiceDocument
