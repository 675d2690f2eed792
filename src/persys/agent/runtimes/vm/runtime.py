"""VMs on libvirt.

Only domains with the labels of this cluster and node are changed. A domain is found by a UUID derived from
the workload id, independent of its name. An update redefines the domain and keeps its disks; only a delete
removes disks, and only those that this agent created. Checks run in the pull step, while the previous VM
still runs.
"""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from persys.agent.ports import Images, PullWatch
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm import power
from persys.agent.runtimes.vm.console import tail_of
from persys.agent.runtimes.vm.domain_xml import (
    ADDRESSES_LABEL,
    CLOUD_INIT_LABEL,
    DiskPart,
    DomainParts,
    domain_uuid,
    domain_xml,
    free_device,
    parse_domain,
    vm_spec,
)
from persys.agent.runtimes.vm.inspection import DomainView, artefact_of, inspect_domain, run_of
from persys.agent.runtimes.vm.kvm import Accel
from persys.agent.runtimes.vm.libvirt import (
    NAME_TAKEN,
    Libvirt,
    LibvirtError,
    VmError,
    failure_of,
    is_code,
)
from persys.agent.runtimes.vm.networks import AttachedInterface, VmNetworks
from persys.agent.runtimes.vm.state_dir import Run, VmStateDir, write_cloud_init_iso
from persys.agent.runtimes.vm.storage.disk_guard import HeldDisk
from persys.agent.runtimes.vm.storage.disks import VmDisks
from persys.core.agent.cloud_init import is_wanted, seed
from persys.core.agent.progress import Artefact, Condition
from persys.errors import ConflictError
from persys.infra.aio.offload import off_loop
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import stop_grace_seconds
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order

log = structlog.get_logger()

START_SECONDS = 120.0


class VmRuntime:
    def __init__(
        self,
        libvirt: Libvirt,
        owner: OwnerLabels,
        clock: Clock,
        *,
        accel: Accel,
        images: Images,
        disks: VmDisks,
        paths: PathCalls,
        root: Path,
        stop_grace_seconds: int,
    ) -> None:
        self._libvirt = libvirt
        self._owner = owner
        self._clock = clock
        self._accel = accel
        self._images = images
        self._disks = disks
        self._paths = paths
        self._networks = VmNetworks(libvirt, paths)
        self._root = root
        self._stop_grace_seconds = stop_grace_seconds
        self._ids: dict[str, WorkloadId] = {}  # by domain UUID, to map events
        self._runs: dict[WorkloadId, Run] = {}  # not yet written to disk

    async def inspect(self, order: Order) -> Artefact | None:
        view = await self._inspect(order.workload_id)
        if view is None:
            return None
        now, workload_id = self._clock.now(), order.workload_id
        run = await self._run_of(workload_id, view, now)
        return await self._paths.run(
            self._root / workload_id, partial(artefact_of, view, run, now=now)
        )

    async def _run_of(self, workload_id: WorkloadId, view: DomainView, now: datetime) -> Run | None:
        """Its current run. It stays in memory if the write fails: a full disk must not hide a VM."""
        state_dir = VmStateDir(self._root, workload_id)
        before = self._runs.get(workload_id)
        if before is None:
            before = await self._paths.run(state_dir.root, state_dir.read_run)
        run = run_of(view, before, now=now)
        if run is None or (run == before and workload_id not in self._runs):
            return run
        try:
            await self._paths.run(state_dir.root, partial(state_dir.write_run, run))
        except (OSError, PathTimeoutError) as err:
            if workload_id not in self._runs:
                log.warning("machine.run_not_kept", workload_id=workload_id, reason=str(err))
            self._runs[workload_id] = run
        else:
            self._runs.pop(workload_id, None)
        return run

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        """Pull the image and run all checks that are possible while the previous VM still runs."""
        spec = vm_spec(order)
        try:
            await self._disks.check(order, VmStateDir(self._root, order.workload_id))
            await self._networks.attach(spec)
        except VmError as err:
            return err.failure
        except LibvirtError as err:
            return failure_of(err, FailureReason.RUNTIME_ERROR)
        return await self._images.fetch(spec.os_image, watch) if spec.os_image else None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        state_dir = VmStateDir(self._root, order.workload_id)
        try:
            await self._paths.run(state_dir.root, state_dir.create)
            interfaces = await self._networks.attach(vm_spec(order))
            async with task_group() as group:
                cloud_init = group.create_task(self._write_cloud_init(order, state_dir, interfaces))
                disks = await self._disks.ensure(order, state_dir)
            more = [await self._kind_of(path) for path in volumes.values()]
            attached = _attached(volumes, more, disks)
            parts = _parts(cloud_init.result(), state_dir, interfaces, (*disks, *attached))
            if failure := await self._networks.reserve(state_dir, interfaces):
                return failure
            xml = domain_xml(
                order, self._owner, parts, accel=self._accel, console=state_dir.console.absolute()
            )
            await self._paths.run(state_dir.root, state_dir.remove_run)
            self._runs.pop(order.workload_id, None)
            await self._libvirt.call(lambda connection: _define(connection, xml))
        except VmError as err:
            return err.failure
        except LibvirtError as err:
            if is_code(err, "VIR_ERR_OPERATION_FAILED", "VIR_ERR_DOM_EXIST"):
                return await self._name_conflict(order, err)
            return failure_of(err, FailureReason.RUNTIME_ERROR)
        return None

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        try:
            if artefact.condition is Condition.PAUSED:
                await self._libvirt.call(lambda connection: power.resume(connection, artefact.id))
                return None
            async with self._disks.guard.held(vm_spec(order).disks) as held:
                await self._check_disks(artefact)
                await self._power_on(artefact, held)
        except VmError as err:
            return err.failure
        except LibvirtError as err:
            if is_code(err, "VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID"):
                raise ConflictError(err.message) from err
            return failure_of(err, FailureReason.VM_BOOT_FAILED)
        return None

    async def _power_on(self, artefact: Artefact, held: list[HeldDisk]) -> None:
        """Start the VM. It is powered off if one of its disks was replaced. VmError, LibvirtError."""
        await self._libvirt.call(
            lambda connection: power.power_on(connection, artefact.id),
            deadline=START_SECONDS,
        )
        try:
            await self._disks.guard.check_started(held, artefact.id)
        except VmError as err:
            log.error("machine.disk_replaced", machine=artefact.name, problem=str(err))
            off = partial(power.power_off, uuid=artefact.id)
            await self._libvirt.call(off, deadline=power.OFF_SECONDS)
            raise

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        grace = vm_spec(order).stop_grace_seconds or self._stop_grace_seconds
        if order.stop_after_seconds:
            grace = stop_grace_seconds(order.spec)
        try:
            await power.shut_down(self._libvirt, artefact, grace=grace, clock=self._clock)
        except LibvirtError as err:
            if is_code(err, "VIR_ERR_NO_DOMAIN"):
                return None
            return failure_of(err, FailureReason.RUNTIME_ERROR)
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        try:
            await self._libvirt.call(lambda connection: power.undefine(connection, artefact.id))
        except LibvirtError as err:
            if not is_code(err, "VIR_ERR_NO_DOMAIN"):
                return failure_of(err, FailureReason.RUNTIME_ERROR)
        return None

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        """Does nothing: VMs are not compared with their definition."""
        return None

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        """Does nothing, see `repair`."""
        return None

    async def discard(self, order: Order) -> Failure | None:
        state_dir = VmStateDir(self._root, order.workload_id)
        try:
            if failure := await self._networks.release(state_dir):
                return failure
            if not order.keeps_data:
                await self._disks.remove(state_dir)
        except VmError as err:
            return err.failure
        except LibvirtError as err:
            return failure_of(err, FailureReason.STORAGE_ERROR)
        await self._paths.run(state_dir.root, state_dir.discard, deadline_seconds=LONG_SECONDS)
        self._runs.pop(order.workload_id, None)
        self._ids.pop(domain_uuid(self._owner, order.workload_id), None)
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        workload_id = self._ids.get(artefact.id)
        if workload_id is None:
            return ""
        console = VmStateDir(self._root, workload_id).console
        return await self._paths.run(console, partial(tail_of, console))

    async def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        async for event in self._libvirt.domain_events():
            if event is None:
                yield None
            elif (workload_id := self._ids.get(event.uuid)) is not None:
                yield workload_id

    async def ping(self) -> None:
        await self._libvirt.ping()

    async def _inspect(self, workload_id: WorkloadId) -> DomainView | None:
        uuid = domain_uuid(self._owner, workload_id)
        self._ids[uuid] = workload_id
        try:
            view = await self._libvirt.call(lambda connection: inspect_domain(connection, uuid))
        except LibvirtError as err:
            raise power.unavailable(err) from err
        if view is None or not self._owner.owns(view.description.labels, workload_id):
            return None
        return view

    async def _write_cloud_init(
        self, order: Order, state_dir: VmStateDir, interfaces: list[AttachedInterface]
    ) -> str:
        """Write the cloud-init ISO and return its checksum; "" if the VM needs none."""
        spec = vm_spec(order)
        if not is_wanted(spec):
            return ""
        links = [interface.link for interface in interfaces]
        texts = await off_loop(partial(seed, order.workload_id, spec, links))
        await write_cloud_init_iso(texts, state_dir.seed, self._paths)
        return texts.sha256

    async def _kind_of(self, volume: Path) -> str:
        is_device = await self._paths.run(volume, volume.is_block_device)
        return "block" if is_device else "file"

    async def _check_disks(self, artefact: Artefact) -> None:
        xml = await self._libvirt.call(lambda connection: power.xml(connection, artefact.id))
        found = parse_domain(xml)
        for device, path in found.sources.items():
            await self._disks.check_file(device, found.formats.get(device, ""), path)

    async def _name_conflict(self, order: Order, err: LibvirtError) -> Failure:
        name = vm_spec(order).name or order.workload_id
        other = await self._libvirt.call(lambda connection: power.uuid_by_name(connection, name))
        if other and other != domain_uuid(self._owner, order.workload_id):
            text = f"VM name {name!r} is in use by a VM that Persys did not create: choose another name"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=NAME_TAKEN)
        return failure_of(err, FailureReason.RUNTIME_ERROR)


def _parts(
    seed_sha256: str,
    state_dir: VmStateDir,
    interfaces: list[AttachedInterface],
    disks: tuple[DiskPart, ...],
) -> DomainParts:
    given = [
        interface.link.address.partition("/")[0]
        for interface in interfaces
        if interface.link.address
    ]
    labels = {ADDRESSES_LABEL: ",".join(given)} if given else {}
    if seed_sha256:
        labels[CLOUD_INIT_LABEL] = seed_sha256
    path = state_dir.seed.absolute() if seed_sha256 else None
    return DomainParts(disks, tuple(interface.interface for interface in interfaces), path, labels)


def _attached(
    volumes: Mapping[str, Path], kinds: list[str], disks: list[DiskPart]
) -> list[DiskPart]:
    """Managed volumes as disks after the VM's own disks, with the volume name as serial number."""
    taken = [disk.device for disk in disks]
    parts = []
    for (name, path), kind in zip(volumes.items(), kinds, strict=True):
        device = free_device(taken)
        taken.append(device)
        source = {"dev" if kind == "block" else "file": str(path)}
        parts.append(DiskPart(device, "raw", source, kind, serial=name))
    return parts


def _define(connection: Any, xml: str) -> None:
    connection.defineXML(xml)
