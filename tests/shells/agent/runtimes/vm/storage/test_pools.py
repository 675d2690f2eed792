"""Storage pools of a node: local and libvirt pools, reported to the scheduler when they change."""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.journal.store import Journal
from persys.agent.node import host
from persys.agent.node.capabilities import StoragePools
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.runtimes.vm.libvirt import Libvirt
from persys.agent.runtimes.vm.storage.pools import AgentPool, LibvirtPools
from persys.agent.settings import AgentSettings
from persys.agent.uplink.link import Link
from persys.agent.volumes.detect import detect_drivers
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.core.agent.storage import LocalPool
from persys.infra.aio.path_calls import DirectPathCalls
from persys.infra.clock import SystemClock
from persys.infra.process import serve
from persys.model.ids import NodeId
from persys.model.node import StoragePool
from persys.wire.gen.control.v1 import control_pb2

DEADLINE_SECONDS = 20.0


@pytest.fixture
async def libvirt() -> AsyncIterator[Libvirt]:
    created = Libvirt("qemu:///system")
    yield created
    await created.close()


@pytest.fixture
async def pool(libvirt: Libvirt, tmp_path: Path) -> AsyncIterator[str]:
    """An active pool in a directory."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    xml = f"<pool type='dir'><name>{name}</name><target><path>{tmp_path}</path></target></pool>"
    await libvirt.call(lambda connection: connection.storagePoolCreateXML(xml) and None)
    yield name
    await libvirt.call(lambda connection: connection.storagePoolLookupByName(name).destroy())


async def test_a_libvirt_pool_shares_the_space_of_its_file_system(
    libvirt: Libvirt, pool: str, tmp_path: Path
) -> None:
    pools = StoragePools(
        host,
        tmp_path / "volumes",
        DirectPathCalls(),
        lambda: LibvirtPools(libvirt, AgentPool(pool, tmp_path)),
    )
    await pools.refresh()

    found = {each.name: each for each in pools.current()}

    whole_gb = shutil.disk_usage(tmp_path).total >> 30
    assert found["local"] == StoragePool("local", "local", whole_gb)
    assert found[pool] == StoragePool(pool, "local", 0, shares_with="local", for_disks=True)


async def test_the_agent_pool_is_reported_before_its_first_disk(
    libvirt: Libvirt, tmp_path: Path
) -> None:
    own = AgentPool(f"test-{uuid.uuid4().hex[:8]}", tmp_path / "not" / "there" / "yet")
    source = LibvirtPools(libvirt, own)

    before = {room.name: room for room in await source.local_pools()}[own.name]
    await libvirt.call(own.ensure)
    try:
        after = {room.name: room for room in await source.local_pools()}[own.name]
    finally:
        await libvirt.call(lambda connection: _remove_pool(connection, own.name))

    whole_gb = shutil.disk_usage(tmp_path).total >> 30
    device = (await asyncio.to_thread(tmp_path.stat)).st_dev
    assert before == after == LocalPool(own.name, "local", whole_gb, device, for_disks=True)


def _remove_pool(connection: Any, name: str) -> None:
    pool = connection.storagePoolLookupByName(name)
    pool.destroy()
    pool.undefine()


class ChangingPools:
    def __init__(self) -> None:
        self.found: list[LocalPool] = []

    async def local_pools(self) -> list[LocalPool]:
        return self.found


class Scheduler:
    """Accepts every node and records the calls."""

    leaving = over = is_stale = False

    def __init__(self) -> None:
        self.registered: list[control_pb2.RegisterNodeRequest] = []
        self.beats = 0

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        self.registered.append(request)
        return control_pb2.RegisterNodeResponse(accepted=True, heartbeat_interval_seconds=1)

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        self.beats += 1
        return control_pb2.HeartbeatResponse(acknowledged=True)


async def until(holds: Any) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.02)


async def test_a_node_whose_pools_changed_registers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persys.agent.node.capabilities.INTERVAL_SECONDS", 0.1)
    scheduler, pools = Scheduler(), ChangingPools()

    @asynccontextmanager
    async def connect(_address: str) -> AsyncIterator[Link]:
        yield scheduler

    settings = AgentSettings(insecure=True, storage_local_root=tmp_path, gc_enabled=False)
    journal = Journal(tmp_path / "state.db", cluster_id="default", node_id=NodeId("n1"))
    registry, clock, paths = VolumeRegistry(journal), SystemClock(), DirectPathCalls()
    environment = Environment(
        journal=journal,
        runtimes=NodeRuntimes(pools=pools),
        volumes=ManagedVolumes(
            detect_drivers(settings, registry, Programs(), paths),
            registry,
            clock,
            paths,
        ),
        host=host,
        clock=clock,
        paths=paths,
        connect=connect,
        random=Random(1),
        boot_id="b1",
    )
    agent = Agent(settings, NodeId("n1"), environment)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(serve(agent.parts(1), asyncio.Event()))
        await until(lambda: scheduler.beats >= 2)
        assert len(scheduler.registered) == 1

        pools.found = [LocalPool("fast", "local", 40)]
        await until(lambda: len(scheduler.registered) == 2)

        describe = scheduler.registered[-1].capabilities.storage_pools
        assert [(each.name, each.total_gb) for each in describe][1:] == [("fast", 40)]
        running.cancel()
    journal.close()
