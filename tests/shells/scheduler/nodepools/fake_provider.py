"""A provider in memory. Tests let its calls fail."""

from collections.abc import Mapping
from datetime import UTC, datetime

from persys.errors import PersysError, ProviderUnavailableError
from persys.model.nodepool import NodePool
from persys.providers.port import (
    Instance,
    InstanceState,
    MachineRequest,
    Provider,
    WorkloadApi,
)
from shells.scheduler.third_party_agent import Node


class FakeProvider:
    """Implements Provider for all pools of a test."""

    def __init__(self) -> None:
        self.requests: list[MachineRequest] = []
        self.running: dict[str, Instance] = {}
        self.destroyed: list[str] = []
        self.lists = 0
        self.list_error: PersysError | None = None
        self.create_error: PersysError | None = None
        self.loses_answers = False
        self.nodes: dict[str, Node] = {}  # by the name of their machine
        self.broken = ""  # the pool whose calls fail unexpectedly

    def open(
        self, pool: NodePool, credentials: Mapping[str, str], workloads: WorkloadApi | None
    ) -> Provider:
        if pool.pool_id == self.broken:
            raise ZeroDivisionError("a defect of a provider")
        return self

    async def check(self) -> None:
        """It is always usable."""

    async def create(self, request: MachineRequest) -> Instance:
        if self.create_error is not None:
            raise self.create_error
        self.requests.append(request)
        instance = Instance(
            f"i-{len(self.requests)}",
            request.name,
            request.tags,
            InstanceState.RUNNING,
            datetime.now(UTC),
        )
        self.running[instance.provider_id] = instance
        if self.loses_answers:
            raise ProviderUnavailableError("no answer")
        return instance

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        self.lists += 1
        if self.list_error is not None:
            raise self.list_error
        return [one for one in self.running.values() if tags.items() <= one.tags.items()]

    async def destroy(self, provider_id: str) -> None:
        self.destroyed.append(provider_id)
        instance = self.running.pop(provider_id, None)
        if instance is not None and instance.name in self.nodes:
            await self.nodes.pop(instance.name).stop_heartbeats()

    async def close(self) -> None:
        """There is nothing to release."""
