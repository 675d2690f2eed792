"""Virtual machines over libvirt.

It touches only domains that carry its own cluster and node. A domain is found by an id made from the
workload's, whatever it is called. What would surprise: an update undefines and defines a domain anew, and its
disks stay; only a delete lets go of those that this agent made. Whatever can be known to be wrong is found
out with the image, while the machine before still runs.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from persys.agent.kvm import Accel
from persys.agent.ports import Images, PullWatch
from persys.agent.runtimes import machine_power
from persys.agent.runtimes.docker_form import Owner
from persys.agent.runtimes.libvirt_connection import Libvirt, LibvirtError
from persys.agent.runtimes.machine_console import tail_of
from persys.agent.runtimes.machine_disks import MachineDisks
from persys.agent.runtimes.machine_errors import NAME_TAKEN, MachineError, failure_of, is_code
from persys.agent.runtimes.machine_form import (
    ADDRESSES_LABEL,
    CLOUD_INIT_LABEL,
    DiskPart,
    Parts,
    domain_xml,
    free_device,
    machine_spec,
    machine_uuid,
)
from persys.agent.runtimes.machine_life import artefact_of, run_of
from persys.agent.runtimes.machine_look import Sight, look
from persys.agent.runtimes.machine_networks import Attached, MachineNetworks
from persys.agent.runtimes.machine_place import MachinePlace
from persys.agent.runtimes.machine_reading import described
from persys.agent.runtimes.machine_seed import write_seed
from persys.core.cloud_init import is_wanted, seed
from persys.core.convergence import Artefact, Condition
from persys.core.fencing import stop_grace_seconds
from persys.errors import ConflictError
from persys.infra.clock import Clock
from persys.infra.together import together
from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.order import Order

START_SECONDS = 120.0


class MachineRuntime:
    def __init__(
        self,
        libvirt: Libvirt,
        owner: Owner,
        clock: Clock,
        *,
        accel: Accel,
        images: Images,
        disks: MachineDisks,
        root: Path,
        stop_grace_seconds: int,
    ) -> None:
        self._libvirt = libvirt
        self._owner = owner
        self._clock = clock
        self._accel = accel
        self._images = images
        self._disks = disks
        self._networks = MachineNetworks(libvirt)
        self._root = root
        self._stop_grace_seconds = stop_grace_seconds
        self._ids: dict[str, WorkloadId] = {}  # by the id of the domain, for its events

    async def inspect(self, workload_id: WorkloadId) -> Artefact | None:
        sight = await self._look(workload_id)
        if sight is None:
            return None
        place = MachinePlace(self._root, workload_id)
        before, now = place.run, self._clock.now()
        run = run_of(sight, before, now=now)
        if run is not None and run != before:
            place.keep_run(run)
        return await asyncio.to_thread(artefact_of, sight, run, now=now)

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        """Beside the image: all that can be checked while the machine before still runs."""
        spec = machine_spec(order)
        try:
            await self._disks.check(order, MachinePlace(self._root, order.workload_id))
            await self._networks.attach(spec)
        except MachineError as err:
            return err.failure
        except LibvirtError as err:
            return failure_of(err, FailureReason.RUNTIME_ERROR)
        return await self._images.fetch(spec.os_image, watch) if spec.os_image else None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        place = MachinePlace(self._root, order.workload_id)
        try:
            place.make()
            cards = await self._networks.attach(machine_spec(order))
            async with together() as group:
                sowing = group.create_task(self._sow(order, place, cards))
                disks = await self._disks.provide(order, place)
            parts = _parts(sowing.result(), place, cards, (*disks, *_attached(volumes, disks)))
            if failure := await self._networks.reserve(place, cards):
                return failure
            xml = domain_xml(
                order, self._owner, parts, accel=self._accel, console=place.console.absolute()
            )
            place.forget_run()
            await self._libvirt.call(lambda connection: _define(connection, xml))
        except MachineError as err:
            return err.failure
        except LibvirtError as err:
            if is_code(err, "VIR_ERR_OPERATION_FAILED", "VIR_ERR_DOM_EXIST"):
                return await self._who_has(order, err)
            return failure_of(err, FailureReason.RUNTIME_ERROR)
        return None

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        try:
            if artefact.condition is Condition.PAUSED:
                await self._libvirt.call(
                    lambda connection: machine_power.go_on(connection, artefact.id)
                )
                return None
            await self._disks.check_paths(order)
            await self._check_disks(artefact)
            await self._libvirt.call(
                lambda connection: machine_power.switch_on(connection, artefact.id),
                deadline=START_SECONDS,
            )
        except MachineError as err:
            return err.failure
        except LibvirtError as err:
            if is_code(err, "VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID"):
                raise ConflictError(err.message) from err
            return failure_of(err, FailureReason.VM_BOOT_FAILED)
        return None

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        grace = machine_spec(order).stop_grace_seconds or self._stop_grace_seconds
        if order.stop_after_seconds:
            grace = stop_grace_seconds(order.spec)
        try:
            await machine_power.shut_down(self._libvirt, artefact, grace=grace, clock=self._clock)
        except LibvirtError as err:
            if is_code(err, "VIR_ERR_NO_DOMAIN"):
                return None
            return failure_of(err, FailureReason.RUNTIME_ERROR)
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        try:
            await self._libvirt.call(
                lambda connection: machine_power.undefine(connection, artefact.id)
            )
        except LibvirtError as err:
            if not is_code(err, "VIR_ERR_NO_DOMAIN"):
                return failure_of(err, FailureReason.RUNTIME_ERROR)
        return None

    async def discard(self, order: Order) -> Failure | None:
        place = MachinePlace(self._root, order.workload_id)
        try:
            if failure := await self._networks.release(place):
                return failure
            if not order.keeps_data:
                await self._disks.remove(place)
        except MachineError as err:
            return err.failure
        except LibvirtError as err:
            return failure_of(err, FailureReason.STORAGE_ERROR)
        await asyncio.to_thread(place.discard)
        self._ids.pop(machine_uuid(self._owner, order.workload_id), None)
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        workload_id = self._ids.get(artefact.id)
        if workload_id is None:
            return ""
        return await asyncio.to_thread(tail_of, MachinePlace(self._root, workload_id).console)

    async def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        async for event in self._libvirt.domain_events():
            if event is None:
                yield None
            elif (workload_id := self._ids.get(event.uuid)) is not None:
                yield workload_id

    async def ping(self) -> None:
        await self._libvirt.ping()

    async def _look(self, workload_id: WorkloadId) -> Sight | None:
        uuid = machine_uuid(self._owner, workload_id)
        self._ids[uuid] = workload_id
        try:
            sight = await self._libvirt.call(lambda connection: look(connection, uuid))
        except LibvirtError as err:
            raise machine_power.unavailable(err) from err
        if sight is None or not self._owner.owns(sight.described.labels, workload_id):
            return None
        return sight

    async def _sow(self, order: Order, place: MachinePlace, cards: list[Attached]) -> str:
        """The checksum of the seed that is written now; empty if it needs none."""
        spec = machine_spec(order)
        if not is_wanted(spec):
            return ""
        links = [card.link for card in cards]
        texts = await asyncio.to_thread(seed, order.workload_id, spec, links)
        await write_seed(texts, place.seed)
        return texts.sha256

    async def _check_disks(self, artefact: Artefact) -> None:
        xml = await self._libvirt.call(
            lambda connection: machine_power.xml(connection, artefact.id)
        )
        found = described(xml)
        for device, path in found.sources.items():
            await self._disks.check_file(device, found.formats.get(device, ""), path)

    async def _who_has(self, order: Order, err: LibvirtError) -> Failure:
        name = machine_spec(order).name or order.workload_id
        other = await self._libvirt.call(lambda connection: machine_power.id_of(connection, name))
        if other and other != machine_uuid(self._owner, order.workload_id):
            text = f"the name {name} belongs to a machine that this agent did not make"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=NAME_TAKEN)
        return failure_of(err, FailureReason.RUNTIME_ERROR)


def _parts(
    seed_sha256: str,
    place: MachinePlace,
    cards: list[Attached],
    disks: tuple[DiskPart, ...],
) -> Parts:
    given = [card.link.address.partition("/")[0] for card in cards if card.link.address]
    labels = {ADDRESSES_LABEL: ",".join(given)} if given else {}
    if seed_sha256:
        labels[CLOUD_INIT_LABEL] = seed_sha256
    path = place.seed.absolute() if seed_sha256 else None
    return Parts(disks, tuple(card.card for card in cards), path, labels)


def _attached(volumes: Mapping[str, Path], disks: list[DiskPart]) -> list[DiskPart]:
    """Managed volumes as disks, after the machine's own; the guest knows each by its serial number."""
    taken = [disk.device for disk in disks]
    parts = []
    for name, path in volumes.items():
        device = free_device(taken)
        taken.append(device)
        kind = "block" if path.is_block_device() else "file"
        source = {"dev" if kind == "block" else "file": str(path)}
        parts.append(DiskPart(device, "raw", source, kind, serial=name))
    return parts


def _define(connection: Any, xml: str) -> None:
    connection.defineXML(xml)
