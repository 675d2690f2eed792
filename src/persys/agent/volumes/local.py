"""Managed volumes as directories on this node: <root>/<workload id>/<volume name>.

Also looks that host paths of plain binds are there: Docker would either make them up or call the whole
spec invalid.
"""

import asyncio
import shutil
from pathlib import Path

from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.spec import ContainerSpec, VolumeMount

DRIVER = "local"


class LocalVolumes:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        return self.root / workload_id / name

    async def prepare(self, order: Order) -> Failure | None:
        if not isinstance(order.spec, ContainerSpec):
            return None
        return await asyncio.to_thread(self._prepare, order.workload_id, order.spec)

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        return await asyncio.to_thread(self._remove, workload_id, names)

    def _prepare(self, workload_id: WorkloadId, spec: ContainerSpec) -> Failure | None:
        missing = next((mount for mount in spec.volumes if not _is_there(mount)), None)
        if missing is not None:
            text = f"host path {missing.host_path} does not exist on this node"
            return Failure(FailureReason.STORAGE_ERROR, text, code="HostPathMissing")
        try:
            for volume in spec.managed_volumes:
                self.path(workload_id, volume.name).mkdir(parents=True, exist_ok=True)
        except OSError as err:
            return _failure(err)
        return None

    def _remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        try:
            for name in names:
                if self.path(workload_id, name).exists():
                    shutil.rmtree(self.path(workload_id, name))
            directory = self.root / workload_id
            if directory.exists() and not any(directory.iterdir()):
                directory.rmdir()
        except OSError as err:
            return _failure(err)
        return None


def _is_there(mount: VolumeMount) -> bool:
    return Path(mount.host_path).exists()


def _failure(err: OSError) -> Failure:
    return Failure(FailureReason.STORAGE_ERROR, f"{err.filename}: {err.strerror}")
