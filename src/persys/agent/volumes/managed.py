"""All managed volumes of this node over all drivers. Implements `Volumes`.

Calls for one workload come from its lane, one at a time. A failed call changes nothing: only `remove` and
`delete` remove a volume.
"""

import os
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
from msgspec.structs import replace

from persys.agent.volumes.detect import Drivers
from persys.agent.volumes.driver import Driver
from persys.agent.volumes.programs import VolumeError
from persys.agent.volumes.registry import VolumeRegistry
from persys.core.agent.report import shortened
from persys.core.agent.storage import DEFAULT_FS_TYPE, check_volume, updated_volume
from persys.errors import InvalidError, NotFoundError, RefusedError, UnavailableError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.node import Volume, VolumeState, VolumeView
from persys.model.spec import ContainerSpec, ManagedVolume, VMSpec, VolumeMount
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order

log = structlog.get_logger()

T = TypeVar("T")


PATH_TIMEOUT = "PathTimeout"


class ManagedVolumes:
    def __init__(
        self, found: Drivers, registry: VolumeRegistry, clock: Clock, paths: PathCalls
    ) -> None:
        self._drivers: Mapping[str, Driver] = found.available
        self._remedies = found.remedies
        self._registry = registry
        self._clock = clock
        self._paths = paths

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset(self._drivers)

    async def check(self, order: Order) -> None:
        spec = order.spec
        if not isinstance(spec, ContainerSpec | VMSpec):
            return
        as_disk = isinstance(spec, VMSpec)
        for index, volume in enumerate(spec.managed_volumes):
            where = f"spec.{'vm' if as_disk else 'container'}.managed_volumes[{index}]"
            known = await self._known(order.workload_id, volume.name)
            self._check(volume, known, where, as_disk=as_disk)

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        volume = self._registered(workload_id, name)
        return self._driver(volume.driver).path(volume)

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        volume = self._registered(workload_id, name)
        return self._driver(volume.driver).disk(volume)

    async def prepare(self, order: Order) -> Failure | None:
        spec = order.spec
        if not isinstance(spec, ContainerSpec | VMSpec):
            return None
        if isinstance(spec, ContainerSpec) and (failure := await self._check_binds(spec.volumes)):
            return failure
        try:
            await self.check(order)
            for volume in spec.managed_volumes:
                as_disk = isinstance(spec, VMSpec)
                await self._attach(order.workload_id, volume, as_disk=as_disk)
        except InvalidError as err:
            return Failure(FailureReason.INVALID_SPEC, str(err), retryable=False)
        except VolumeError as err:
            return err.failure
        await self._detach_others(order.workload_id, {each.name for each in spec.managed_volumes})
        return None

    async def _check_binds(self, mounts: tuple[VolumeMount, ...]) -> Failure | None:
        """Check that each host path exists."""
        for mount in mounts:
            path = mount.host_path
            try:
                await self._paths.run(path, partial(os.stat, path))
            except FileNotFoundError:
                text, code = f"host path {path} does not exist on this node", "HostPathMissing"
            except (OSError, ValueError) as err:
                text, code = (
                    f"host path {shortened(path, 200)}: {_problem(err)}",
                    "HostPathUnusable",
                )
            except PathTimeoutError as err:
                text, code = f"host path {err}", "PathTimeout"
            else:
                continue
            return Failure(FailureReason.STORAGE_ERROR, text, code=code)
        return None

    async def release(self, workload_id: WorkloadId) -> None:
        await self._detach_others(workload_id, set())

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        try:
            for volume in self._registry.of(workload_id):
                await self._detach(volume)
            for name in sorted(names):
                if (removed := await self._known(workload_id, name)) is not None:
                    await self._driver(removed.driver).delete(removed)
                    await self._registry.remove(removed)
        except VolumeError as err:
            return err.failure
        return None

    async def inventory(self) -> list[VolumeView]:
        known = {(each.workload_id, each.name): each for each in self._registry.all()}
        for driver in self._drivers.values():
            for found in await _found(driver.find_all()):
                known.setdefault((found.workload_id, found.name), found)
        return [await self._seen(volume) for _, volume in sorted(known.items())]

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        volume = await self._known(workload_id, name)
        if volume is None:
            raise NotFoundError("volume", f"{workload_id}/{name}")
        try:
            await self._detach(volume)
            await self._driver(volume.driver).delete(volume)
        except VolumeError as err:
            raise RefusedError(f"cannot delete volume {name} of {workload_id}: {err}") from err
        await self._registry.remove(volume)
        log.info("volume.deleted", workload_id=workload_id, name=name, driver=volume.driver)

    async def _attach(
        self, workload_id: WorkloadId, wanted: ManagedVolume, *, as_disk: bool
    ) -> None:
        known = await self._known(workload_id, wanted.name)
        volume = updated_volume(
            wanted, known, workload_id=workload_id, as_disk=as_disk, now=self._clock.now()
        )
        await self._driver(wanted.driver).attach(volume, known)
        await self._registry.save(volume)

    async def _detach(self, volume: Volume) -> None:
        await self._driver(volume.driver).detach(volume)
        if volume.attached:
            await self._registry.save(replace(volume, attached=False))

    async def _detach_others(self, workload_id: WorkloadId, wanted: set[str]) -> None:
        """Detach volumes of an earlier revision. They are kept until the workload is deleted."""
        for volume in self._registry.of(workload_id):
            if volume.attached and volume.name not in wanted:
                try:
                    await self._detach(volume)
                except VolumeError as err:
                    log.warning("volume.not_detached", name=volume.name, reason=str(err))

    async def _seen(self, volume: Volume) -> VolumeView:
        owned = self._registry.has_owner(volume.workload_id)
        state = VolumeState.ATTACHED if owned else VolumeState.RETAINED
        seen = VolumeView(
            volume.workload_id,
            volume.name,
            volume.driver,
            "",
            state,
            volume.retain,
            "",
            fs_type=volume.fs_type,
            created_at=volume.created_at,
        )
        driver = self._drivers.get(volume.driver)
        if driver is None:
            return seen
        where = driver.disk(volume) if volume.as_disk else driver.path(volume)
        seen = replace(seen, pool=driver.pool, path=str(where))
        try:
            measure = await driver.measure(volume)
        except (OSError, PathTimeoutError) as err:
            log.warning("volume.not_measured", path=str(where), reason=str(err))
            return seen
        return replace(seen, size_bytes=measure.size_bytes, used_bytes=measure.used_bytes)

    def _check(
        self, wanted: ManagedVolume, known: Volume | None, where: str, *, as_disk: bool
    ) -> None:
        driver = self._drivers.get(wanted.driver)
        if driver is None:
            present = ", ".join(sorted(self._drivers))
            remedy = self._remedies.get(wanted.driver, "")
            problem = f"driver {wanted.driver!r} is not available on this node: expected {present}"
            raise InvalidError(f"{where}.driver", f"{problem}; {remedy}" if remedy else problem)
        if violation := check_volume(wanted, known, driver.abilities, as_disk=as_disk):
            raise InvalidError(f"{where}.{violation.field}", violation.problem)
        fs_type = wanted.fs_type or (known.fs_type if known is not None else "")
        if wanted.size_gb and not fs_type:
            fs_type = DEFAULT_FS_TYPE
        if lack := driver.unsupported(fs_type):
            raise InvalidError(f"{where}.{'fs_type' if wanted.fs_type else 'size_gb'}", lack)

    async def _known(self, workload_id: WorkloadId, name: str) -> Volume | None:
        """The registered volume, or one that is older than the registry. Raises UnavailableError."""
        if (kept := self._registry.get(workload_id, name)) is not None:
            return kept
        for driver in self._drivers.values():
            if (found := await _found(driver.find(workload_id, name))) is not None:
                return found
        return None

    def _registered(self, workload_id: WorkloadId, name: str) -> Volume:
        volume = self._registry.get(workload_id, name)
        assert volume is not None, "volumes are prepared before they are used"
        return volume

    def _driver(self, name: str) -> Driver:
        if name not in self._drivers:
            text = f"volume driver {name} is not configured on this node any more"
            raise VolumeError(text, code="DriverMissing")
        return self._drivers[name]


async def _found(search: Awaitable[T]) -> T:
    """If the search fails the volume may exist: raises UnavailableError."""
    try:
        return await search
    except OSError as err:
        raise UnavailableError(f"volumes: {err.filename}: {_problem(err)}") from err


def _problem(err: OSError | ValueError) -> str:
    return (err.strerror if isinstance(err, OSError) else None) or str(err)


def storage_failure(what: str, err: OSError | PathTimeoutError) -> Failure:
    """`what`: the operation or the resource that failed."""
    if isinstance(err, PathTimeoutError):
        return Failure(FailureReason.STORAGE_ERROR, f"{what}: {err}", code=PATH_TIMEOUT)
    if isinstance(err, TimeoutError | ConnectionError):
        reason = err.strerror or str(err) or "no response in time"
        return Failure(FailureReason.RUNTIME_ERROR, f"{what}: {reason}")
    named = f"{err.filename}: " if err.filename else ""
    return Failure(FailureReason.STORAGE_ERROR, f"{what}: {named}{err.strerror or err}")
