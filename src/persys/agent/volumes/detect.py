"""Detects the volume drivers of this node: those that are configured and whose programs are installed."""

from dataclasses import dataclass

import structlog

from persys.agent.settings import AgentSettings
from persys.agent.volumes import ceph_rbd, local, nfs
from persys.agent.volumes.ceph_rbd import Ceph, CephDriver
from persys.agent.volumes.driver import Driver
from persys.agent.volumes.local import LocalDriver
from persys.agent.volumes.nfs import Export, NfsDriver
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.infra.aio.path_calls import PathCalls

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Drivers:
    available: dict[str, Driver]
    remedies: dict[str, str]  # what to do to enable a missing driver


def detect_drivers(
    settings: AgentSettings, registry: VolumeRegistry, programs: Programs, paths: PathCalls
) -> Drivers:
    available: dict[str, Driver] = {
        local.DRIVER: LocalDriver(settings.storage_local_root, programs, paths)
    }
    remedies: dict[str, str] = {}
    if remedy := _nfs_remedy(settings, programs):
        remedies[nfs.DRIVER] = remedy
    else:
        export = Export(
            settings.storage_nfs_server,
            settings.storage_nfs_export,
            settings.storage_nfs_options,
            settings.storage_nfs_stage_dir,
        )
        available[nfs.DRIVER] = NfsDriver(export, settings.cluster_id, registry, programs, paths)
    if remedy := _ceph_remedy(settings, programs):
        remedies[ceph_rbd.DRIVER] = remedy
    else:
        images = Ceph(
            settings.storage_ceph_cluster,
            settings.storage_ceph_pool,
            settings.storage_ceph_user,
            settings.storage_ceph_keyring,
            settings.storage_ceph_stage_dir,
        )
        available[ceph_rbd.DRIVER] = CephDriver(images, settings.cluster_id, programs, paths)
    return Drivers(available, remedies)


def _nfs_remedy(settings: AgentSettings, programs: Programs) -> str:
    if not settings.storage_nfs_server or not settings.storage_nfs_export:
        return "set PERSYS_STORAGE_NFS_SERVER and PERSYS_STORAGE_NFS_EXPORT"
    return _install(nfs.DRIVER, programs.missing(*nfs.TOOLS))


def _ceph_remedy(settings: AgentSettings, programs: Programs) -> str:
    if not settings.storage_ceph_pool:
        return "set PERSYS_STORAGE_CEPH_POOL"
    return _install(ceph_rbd.DRIVER, programs.missing(*ceph_rbd.TOOLS))


def _install(driver: str, missing: list[str]) -> str:
    if not missing:
        return ""
    log.warning("volumes.driver_not_usable", driver=driver, missing=missing)
    return f"install {', '.join(missing)}"
