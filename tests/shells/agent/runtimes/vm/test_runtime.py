"""VMs on a real libvirtd. Most have empty disks: the tests need no guest."""

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from e2e.vms import BOOT_SECONDS, TINY, page, virsh, vm_directory, volumes
from persys.agent.ports import BaseImage, PullWatch
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm import power
from persys.agent.runtimes.vm.inspection import VmGarbage
from persys.agent.runtimes.vm.kvm import Accel
from persys.agent.runtimes.vm.libvirt import Libvirt
from persys.agent.runtimes.vm.runtime import VmRuntime
from persys.agent.runtimes.vm.storage.disks import DiskInventory, VmDisks
from persys.agent.runtimes.vm.storage.pools import AgentPool
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.garbage import Item, Kind
from persys.core.agent.progress import Artefact, Condition
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import GIB, VolumeState
from persys.model.spec import CloudInit, Disk, Network, VMSpec, WorkloadType
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Order

SMALL = VMSpec(
    1, 64, disks=(Disk(device="vda", type="disk", format="qcow2", size_gb=1),), stop_grace_seconds=1
)
MAC = "52:54:00:5e:ed:01"
ON_DEFAULT = Network("default", mac_address=MAC)


class OneImage:
    """An image store with one image for every name."""

    async def fetch(self, _os_image: str, _watch: PullWatch) -> Failure | None:
        return None

    async def base(self, _os_image: str) -> BaseImage | None:
        return BaseImage(TINY, "qcow2", 64 * 1024 * 1024)


class Watch:
    def queued(self, _why: str) -> None: ...

    def began(self) -> None: ...

    def progress(self, _fetching: object) -> None: ...

    async def fetched(self, _image: str, _image_id: str) -> None: ...


class Node:
    """The VM runtime of an agent, with its own pool and directories."""

    def __init__(self, directory: Path, libvirt: Libvirt) -> None:
        clock, images, paths = SystemClock(), OneImage(), ThreadPathCalls()
        self.directory = directory
        self.pool = directory.name
        self.owner = OwnerLabels("test", NodeId(f"node-{uuid.uuid4().hex[:8]}"))
        self.root = directory / "vms"
        self._disks = VmDisks(
            libvirt,
            images,
            AgentPool(self.pool, directory / "disks"),
            clock,
            paths,
            policy=NodePolicy(False, (), ()),
            bases=TINY.parent,
        )
        self.runtime = VmRuntime(
            libvirt,
            self.owner,
            clock,
            accel=Accel.TCG,
            images=images,
            disks=self._disks,
            paths=paths,
            root=self.root,
            stop_grace_seconds=20,
        )
        self.inventory = DiskInventory(libvirt, self._disks, self.owner, paths, self.root)
        self.garbage = VmGarbage(libvirt, self.owner)

    def order(self, spec: VMSpec = SMALL, *, revision: str = "r1", name: str = "") -> Order:
        workload_id = WorkloadId(name or f"{self.pool}-{uuid.uuid4().hex[:6]}")
        named = replace(spec, name=spec.name or workload_id)
        return Order(workload_id, WorkloadType.VM, Revision(revision), 1, Desired.RUNNING, named)

    async def create(self, order: Order) -> Failure | None:
        return await self.runtime.pull(order, Watch()) or await self.runtime.create(order, {})

    async def seen(self, order: Order) -> Artefact:
        found = await self.runtime.inspect(order)
        assert found is not None
        return found

    async def start(self, order: Order) -> Failure | None:
        return await self.runtime.start(order, await self.seen(order))

    async def stop(self, order: Order) -> Failure | None:
        return await self.runtime.stop(order, await self.seen(order))

    async def stop_and_remove(self, order: Order) -> None:
        """Stop and remove, as in an update."""
        assert await self.runtime.remove(order, await self.seen(order)) is None

    def volume(self, order: Order, device: str = "vda") -> Path:
        return self.directory / "disks" / f"{order.workload_id}-{device}.qcow2"


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with vm_directory() as (path, _settings):
        yield path


@pytest.fixture
async def node(directory: Path) -> AsyncIterator[Node]:
    libvirt = Libvirt("qemu:///system")
    yield Node(directory, libvirt)
    await libvirt.close()


def make_disk(path: Path, *words: str) -> None:
    command = ["qemu-img", "create", "-q", "-f", "qcow2", *words, str(path), "1M"]
    subprocess.run(command, check=True, timeout=60)


async def eventually(holds: Callable[[], bool], what: str, *, within: float) -> None:
    deadline = time.monotonic() + within
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        await asyncio.sleep(0.2)


async def test_a_guest_runs_cloud_init_shuts_down_on_request_and_keeps_its_disk(node: Node) -> None:
    script = "#!/bin/sh\necho seeded: $(hostname)\necho kept > /disk/www/kept\n"
    spec = replace(
        SMALL,
        memory_mb=160,
        os_image="tiny",
        disks=(Disk(device="vda", type="disk", format="qcow2"),),
        networks=(ON_DEFAULT,),
        cloud_init=CloudInit(user_data=script),
        stop_grace_seconds=BOOT_SECONDS,
    )
    order = node.order(spec)
    assert await node.create(order) is None
    assert await node.start(order) is None
    console = node.root / order.workload_id / "console.log"

    await eventually(
        lambda: "guest: up as" in console.read_text(errors="replace"), "up", within=BOOT_SECONDS
    )
    running = await node.seen(order)
    async with asyncio.timeout(BOOT_SECONDS):
        while (
            "vm.primary_ip" not in running.facts
        ):  # libvirt reports the guest's lease a little later
            await asyncio.sleep(0.2)
            running = await node.seen(order)
    address = running.facts["vm.primary_ip"]

    assert f"seeded: {order.workload_id}" in console.read_text(errors="replace")
    assert "guest: up as" in await node.runtime.log_tail(running)
    await eventually(lambda: page(address, "kept") == "kept", "it serves", within=BOOT_SECONDS)
    assert running.facts["vm.mac_addresses"] == MAC
    assert len(running.facts["vm.cloud_init_sha256"]) == 64

    assert await node.stop(order) is None
    ended = await node.seen(order)

    assert (ended.exit_code, ended.error) == (0, "the guest shut down")
    before = node.volume(order).read_bytes()
    larger = replace(
        order, revision=Revision("r2"), spec=replace(spec, vcpus=2, memory_mb=256, name="larger-vm")
    )
    await node.stop_and_remove(order)
    assert await node.create(larger) is None
    again = await node.seen(larger)

    assert again.revision == "r2"
    assert again.condition is Condition.CREATED
    assert f"{256 * 1024} KiB" in virsh("dominfo", again.id)
    assert node.volume(order).read_bytes() == before
    await node.runtime.remove(larger, again)
    assert await node.runtime.discard(larger) is None


async def test_a_guest_that_ignores_shutdown_is_powered_off_after_its_grace(node: Node) -> None:
    order = node.order()
    assert await node.create(order) is None
    assert await node.start(order) is None

    assert await node.stop(order) is None

    ended = await node.seen(order)
    assert (ended.condition, ended.error) == (Condition.EXITED, "the VM was powered off")


async def test_a_deleted_vm_leaves_nothing(node: Node) -> None:
    spec = replace(SMALL, networks=(replace(ON_DEFAULT, ip_address="192.168.122.201"),))
    order = node.order(spec)
    assert await node.create(order) is None
    assert f"mac='{MAC}'" in virsh("net-dumpxml", "default")
    assert node.volume(order).exists()

    await node.stop_and_remove(order)
    assert await node.runtime.discard(replace(order, desired=Desired.DELETED)) is None

    assert await node.runtime.inspect(order) is None
    assert f"mac='{MAC}'" not in virsh("net-dumpxml", "default")
    assert node.volume(order).name not in volumes(node.directory)
    assert not (node.root / order.workload_id).exists()


async def test_a_vm_that_moves_to_another_node_leaves_its_disks(node: Node) -> None:
    order = node.order()
    assert await node.create(order) is None
    await node.stop_and_remove(order)

    assert await node.runtime.discard(replace(order, keeps_data=True)) is None

    every = await node.inventory.inventory()
    (left,) = [disk for disk in every if disk.workload_id == order.workload_id]
    assert (left.state, left.size_bytes) == (VolumeState.RETAINED, GIB)
    assert node.volume(order).exists()
    await node.inventory.delete(order.workload_id, left.name)
    assert not node.volume(order).exists()


async def test_a_foreign_vm_is_not_changed(node: Node) -> None:
    name = f"{node.pool}-foreign"
    xml = node.directory / "foreign.xml"
    xml.write_text(
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>"
        "<os><type>hvm</type></os></domain>"
    )
    virsh("define", str(xml))
    try:
        before = virsh("dumpxml", name)
        failure = await node.create(node.order(name=name))

        assert failure is not None
        assert (failure.code, name in failure.message) == ("NameTaken", True)
        assert virsh("dumpxml", name) == before
        assert name not in {item.name for item in await node.garbage.inventory()}
    finally:
        virsh("undefine", name)


async def test_an_orphan_vm_is_found_and_removed_without_its_data(node: Node) -> None:
    order = node.order()
    assert await node.create(order) is None
    assert await node.start(order) is None

    (item,) = await node.garbage.inventory()

    assert item == Item(Kind.VM, item.id, order.workload_id, order.workload_id, running=True)
    assert await node.garbage.remove(item) == ""
    assert await node.runtime.inspect(order) is None
    assert node.volume(order).exists()
    assert await node.garbage.remove(item) == ""


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (
            replace(SMALL, networks=(Network("nowhere", mac_address=MAC),)),
            FailureReason.NETWORK_ERROR,
            ("nowhere", "default"),
        ),
        (
            replace(SMALL, networks=(replace(ON_DEFAULT, ip_address="10.9.8.7"),)),
            FailureReason.INVALID_SPEC,
            ("10.9.8.7", "192.168.122.0/24"),
        ),
        (
            replace(SMALL, disks=(Disk("nopool", 1, "vda", format="qcow2"),)),
            FailureReason.STORAGE_ERROR,
            ("nopool",),
        ),
        (
            replace(SMALL, disks=(Disk(device="vda", format="qcow2"),)),
            FailureReason.INVALID_SPEC,
            ("vda", "no size"),
        ),
        (
            replace(SMALL, disks=(Disk(device="xvda", size_gb=1),)),
            FailureReason.INVALID_SPEC,
            ("xvda",),
        ),
        (
            replace(SMALL, disks=(Disk(device="sda", type="cdrom", path="/no/such.iso"),)),
            FailureReason.STORAGE_ERROR,
            ("sda", "/no/such.iso"),
        ),
    ],
    ids=["network", "address", "pool", "size", "device", "iso"],
)
async def test_an_unsupported_vm_spec_is_rejected_by_field(
    node: Node, spec: VMSpec, reason: FailureReason, words: tuple[str, ...]
) -> None:
    order = node.order(spec)

    failure = await node.create(order)

    assert failure is not None
    assert failure.reason is reason
    assert all(word in failure.message for word in words), failure.message
    assert await node.runtime.inspect(order) is None


async def test_a_disk_grows_and_never_shrinks(node: Node) -> None:
    def sized(size_gb: int) -> Order:
        return replace(
            order, spec=replace(SMALL, disks=(replace(SMALL.disks[0], size_gb=size_gb),))
        )

    order = node.order()
    assert await node.create(order) is None
    await node.stop_and_remove(order)
    assert await node.create(sized(2)) is None
    every = await node.inventory.inventory()
    (grown,) = [disk for disk in every if disk.workload_id == order.workload_id]
    assert (grown.size_bytes, grown.state) == (2 * GIB, VolumeState.ATTACHED)

    failure = await node.runtime.create(sized(1), {})

    assert failure is not None
    assert failure.reason is FailureReason.INVALID_SPEC
    assert "cannot shrink" in failure.message


async def test_a_disk_cannot_change_its_image(node: Node) -> None:
    order = node.order()
    assert await node.create(order) is None

    failure = await node.runtime.pull(
        replace(order, spec=replace(SMALL, os_image="other")), Watch()
    )

    assert failure is not None
    assert (failure.reason, "keeps its data" in failure.message) == (
        FailureReason.INVALID_SPEC,
        True,
    )


async def test_an_existing_foreign_volume_is_not_used_as_a_disk(node: Node) -> None:
    first = node.order()
    assert await node.create(first) is None  # so that the pool exists
    order = node.order()
    virsh("vol-create-as", node.pool, node.volume(order).name, "1M", "--format", "qcow2")

    failure = await node.create(order)

    assert failure is not None
    assert failure.code == "NameTaken"
    assert await node.runtime.discard(order) is None
    assert node.volume(order).exists()


async def test_a_disk_provided_by_the_user_is_never_removed(node: Node) -> None:
    theirs, ours = node.directory / "theirs.qcow2", node.directory / "ours.qcow2"
    await asyncio.to_thread(make_disk, theirs)
    disks = (
        Disk(device="vda", path=str(theirs), format="qcow2"),
        Disk(device="vdb", path=str(ours), format="qcow2", size_gb=1),
    )
    order = node.order(replace(SMALL, disks=disks))
    assert await node.create(order) is None
    assert ours.exists()

    await node.stop_and_remove(order)
    assert await node.runtime.discard(order) is None

    assert theirs.exists()
    assert not ours.exists()


async def test_a_corrupt_disk_is_reported_before_the_vm_starts(node: Node) -> None:
    broken = node.directory / "broken.qcow2"
    broken.write_bytes(os.urandom(4096))
    order = node.order(
        replace(SMALL, disks=(Disk(device="vda", path=str(broken), format="qcow2"),))
    )
    assert await node.create(order) is None

    failure = await node.start(order)

    assert failure is not None
    assert (failure.reason, failure.code) == (FailureReason.STORAGE_ERROR, "CorruptDisk")
    assert "disk vda" in failure.message
    assert (await node.seen(order)).condition is Condition.CREATED


async def test_a_paused_vm_is_resumed_on_start(node: Node) -> None:
    order = node.order()
    assert await node.create(order) is None
    assert await node.start(order) is None
    virsh("suspend", order.workload_id)
    assert (await node.seen(order)).condition is Condition.PAUSED

    assert await node.start(order) is None

    assert (await node.seen(order)).condition is Condition.RUNNING
    await node.stop(order)


async def test_vm_changes_are_reported_as_events(node: Node) -> None:
    order = node.order()
    assert await node.create(order) is None
    changes = node.runtime.changes()
    await node.seen(order)
    try:
        async with asyncio.timeout(30):
            assert await anext(changes) is None
            assert await node.start(order) is None
            assert await anext(changes) == order.workload_id
    finally:
        await changes.aclose()
    await node.stop(order)


@pytest.mark.parametrize("trick", ["backing file", "json backing", "data file", "link"])
async def test_a_user_disk_that_refers_to_another_file_is_rejected(
    node: Node, tmp_path: Path, trick: str
) -> None:
    secret, path = tmp_path / "secret", tmp_path / "disk.qcow2"
    secret.write_bytes(b"0" * 1024 * 1024)
    options = {
        "backing file": ["-b", str(secret), "-F", "raw"],
        "json backing": ["-u", "-F", "raw", "-b", f'json:{{"file.filename": "{secret}"}}'],
        "data file": ["-o", f"data_file={tmp_path / 'data'}"],
    }
    if trick == "link":
        make_disk(tmp_path / "real.qcow2")
        path.symlink_to(tmp_path / "real.qcow2")
    else:
        make_disk(path, *options[trick])

    disk = Disk(device="vda", path=str(path), format="qcow2")
    failure = await node.create(node.order(replace(SMALL, disks=(disk,))))

    assert failure is not None
    assert failure.reason is FailureReason.INVALID_SPEC
    problems = ("another file", "external data file", "symbolic link")
    assert any(problem in failure.message for problem in problems)


async def test_a_vm_whose_disk_is_replaced_during_start_is_powered_off(
    node: Node, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = directory / f"own-{uuid.uuid4().hex[:6]}"
    place.mkdir(mode=0o755)
    disk, secret = place / "disk.qcow2", directory / f"secret-{uuid.uuid4().hex[:6]}.qcow2"
    for path in (disk, secret):
        await asyncio.to_thread(make_disk, path)
        path.chmod(0o666)
    order = node.order(replace(SMALL, disks=(Disk(device="vda", path=str(disk), format="qcow2"),)))
    assert await node.create(order) is None
    power_on = power.power_on

    def swap_first(connection: Any, domain: str) -> None:
        disk.rename(place / "aside.qcow2")
        disk.symlink_to(secret)
        power_on(connection, domain)

    with monkeypatch.context() as patched:
        patched.setattr(power, "power_on", swap_first)
        failure = await node.start(order)

    assert failure is not None
    assert (failure.code, failure.retryable) == ("DiskReplaced", False)
    assert str(disk) in failure.message
    assert (await node.seen(order)).condition is not Condition.RUNNING

    disk.unlink()
    (place / "aside.qcow2").rename(disk)
    assert await node.start(order) is None
    assert (await node.seen(order)).condition is Condition.RUNNING
    await node.stop(order)
