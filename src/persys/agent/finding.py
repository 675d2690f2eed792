"""What the runtimes of this node are built from: images, policy, files of containers, access to machines."""

from collections.abc import Callable
from functools import partial
from urllib.parse import quote

import structlog

from persys.agent.files import ContainerFiles
from persys.agent.images import ImageStore
from persys.agent.policy import policy_of
from persys.agent.runtimes.docker_form import Owner
from persys.agent.runtimes.machine_access import MachineAccess
from persys.agent.runtimes.machine_setup import (
    Hypervisor,
    users_of_images,
)
from persys.agent.settings import AgentSettings
from persys.agent.state import State
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import WorkloadType

log = structlog.get_logger()


def open_images(
    settings: AgentSettings,
    state: State,
    clock: Clock,
    *,
    changed: Callable[[], None],
    is_first: bool,
) -> ImageStore | None:
    """None: an ordinary user has no place for machines, and all else runs."""
    users = partial(users_of_images, state, settings.vm_dir.absolute())
    images = ImageStore(
        settings.vm_images_dir, clock, policy=policy_of(settings), users=users, changed=changed
    )
    try:
        images.open()
    except OSError as err:
        say = log.warning if is_first else log.debug
        say("machines.absent", reason=f"PERSYS_VM_IMAGES_DIR cannot be used: {err}")
        return None
    return images


def machines_of(state: State) -> list[WorkloadId]:
    entries = state.entries.items()
    return [workload_id for workload_id, entry in entries if entry.order.type is WorkloadType.VM]


def machine_access(hypervisor: Hypervisor, settings: AgentSettings, owner: Owner) -> MachineAccess:
    return MachineAccess(hypervisor.libvirt, owner, settings.vm_dir.absolute())


def has_machines(state: State) -> bool:
    return bool(machines_of(state))


def container_files(settings: AgentSettings, owner: Owner) -> ContainerFiles:
    """Beside the journal; several agents may have theirs in one directory."""
    return ContainerFiles(settings.state_path.parent / "files" / quote(owner.node_id, safe=""))
