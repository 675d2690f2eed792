"""Builds what the runtimes need: the image store, container files, console access, workload directories."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import structlog

from persys.agent.images.store import ImageStore
from persys.agent.journal.store import State
from persys.agent.runtimes.docker.config_files import ContainerFiles, find_memory_directory
from persys.agent.runtimes.docker.mapping import Owner
from persys.agent.runtimes.vm.console import MachineAccess
from persys.agent.runtimes.vm.detect import Hypervisor, MachineUsers
from persys.agent.settings import AgentSettings
from persys.agent.workloads.node_policy import policy_of
from persys.errors import UnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import WorkloadType

log = structlog.get_logger()


async def open_images(
    settings: AgentSettings,
    state: State,
    clock: Clock,
    paths: PathCalls,
    *,
    changed: Callable[[], None],
    is_first: bool,
) -> ImageStore | None:
    """None if the directory cannot be used, for example without root: the node then runs no VMs."""
    images = ImageStore(
        settings.vm_images_dir,
        clock,
        paths,
        policy=policy_of(settings),
        users=MachineUsers(state, settings.vm_dir.absolute()),
        changed=changed,
    )
    try:
        await images.open()
    except (OSError, UnavailableError) as err:
        say = log.warning if is_first else log.debug
        say("machines.absent", reason=f"PERSYS_VM_IMAGES_DIR cannot be used: {err}")
        return None
    return images


def machines_of(state: State) -> list[WorkloadId]:
    entries = state.entries.items()
    return [workload_id for workload_id, entry in entries if entry.order.type is WorkloadType.VM]


def machine_access(
    hypervisor: Hypervisor, settings: AgentSettings, owner: Owner, paths: PathCalls
) -> MachineAccess:
    return MachineAccess(hypervisor.libvirt, owner, paths, settings.vm_dir.absolute())


def has_machines(state: State) -> bool:
    return bool(machines_of(state))


def container_files(settings: AgentSettings, owner: Owner) -> ContainerFiles:
    """Container files, next to the journal. Several agents may share that directory."""
    memory = find_memory_directory(settings.secret_files_dir)
    return ContainerFiles(_files_root(settings, owner), memory)


def workload_roots(settings: AgentSettings, owner: Owner) -> list[Path]:
    """Directories below which every workload has its own directories."""
    state, local = settings.state_path.absolute().parent, settings.storage_local_root.resolve()
    return [
        _files_root(settings, owner).absolute(),
        state / "past",
        state / "stacks",
        Path("/dev/shm"),  # noqa: S108  # only compared
        Path("/proc"),
        *(local / name for name in ("", ".files", ".disks", ".doomed")),
        settings.storage_nfs_stage_dir.resolve() / settings.cluster_id,
        settings.storage_ceph_stage_dir.resolve(),
        settings.vm_dir.absolute(),
        settings.vm_images_dir.absolute() / "incoming",
    ]


def _files_root(settings: AgentSettings, owner: Owner) -> Path:
    return settings.state_path.parent / "files" / quote(owner.node_id, safe="")
