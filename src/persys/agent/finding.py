"""What this machine has for an agent to work with: runtimes, and what looks after what they made."""

from functools import partial
from urllib.parse import quote

import structlog

from persys.agent.credentials import Credentials
from persys.agent.files import ContainerFiles
from persys.agent.images import ImageStore
from persys.agent.leftovers import AllLeftovers
from persys.agent.meter import Sampler
from persys.agent.policy import policy_of
from persys.agent.ports import Leftovers, Runtime
from persys.agent.runtimes.compose_setup import find_compose
from persys.agent.runtimes.docker import DockerRuntime
from persys.agent.runtimes.docker_engine import Engine
from persys.agent.runtimes.docker_form import Owner
from persys.agent.runtimes.docker_leftovers import DockerLeftovers
from persys.agent.runtimes.docker_pull import Puller
from persys.agent.runtimes.docker_usage import DockerUsage
from persys.agent.runtimes.machine_access import MachineAccess
from persys.agent.runtimes.machine_leftovers import MachineLeftovers
from persys.agent.runtimes.machine_setup import (
    Hypervisor,
    users_of_images,
)
from persys.agent.runtimes.machine_usage import MachineUsage
from persys.agent.settings import AgentSettings
from persys.agent.state import State
from persys.core.garbage import Kind
from persys.infra.clock import Clock, SystemClock
from persys.model.ids import WorkloadId
from persys.model.spec import WorkloadType

log = structlog.get_logger()


async def find_runtimes(
    settings: AgentSettings, owner: Owner, engine: Engine | None
) -> dict[WorkloadType, Runtime]:
    if engine is None:
        return {}
    credentials = Credentials(settings.credentials_dir)
    puller = Puller(engine, credentials)
    runtimes: dict[WorkloadType, Runtime] = {
        WorkloadType.CONTAINER: DockerRuntime(
            engine,
            owner,
            puller=puller,
            files=container_files(settings, owner),
            policy=policy_of(settings),
            stop_grace_seconds=round(settings.stop_grace.total_seconds()),
            pids_max=settings.pids_max,
        )
    }
    compose = await find_compose(
        settings, engine, owner, policy=policy_of(settings), puller=puller, credentials=credentials
    )
    if compose is not None:
        runtimes[WorkloadType.COMPOSE] = compose
    return runtimes


def open_images(settings: AgentSettings, state: State, clock: Clock) -> ImageStore | None:
    """None: an ordinary user has no place for machines, and all else runs."""
    users = partial(users_of_images, state, settings.vm_dir.absolute())
    images = ImageStore(settings.vm_images_dir, clock, policy=policy_of(settings), users=users)
    try:
        images.open()
    except OSError as err:
        log.warning("machines.absent", reason=f"PERSYS_VM_IMAGES_DIR cannot be used: {err}")
        return None
    return images


def samplers_of(
    engine: Engine | None, hypervisor: Hypervisor | None, owner: Owner, state: State
) -> dict[str, Sampler]:
    samplers: dict[str, Sampler] = {}
    if engine is not None:
        samplers["docker"] = DockerUsage(engine, owner, SystemClock())
    if hypervisor is not None:
        samplers["libvirt"] = MachineUsage(
            hypervisor.libvirt, owner, SystemClock(), partial(_machines_of, state)
        )
    return samplers


def _machines_of(state: State) -> list[WorkloadId]:
    entries = state.entries.items()
    return [workload_id for workload_id, entry in entries if entry.order.type is WorkloadType.VM]


def machine_access(hypervisor: Hypervisor, settings: AgentSettings, owner: Owner) -> MachineAccess:
    return MachineAccess(hypervisor.libvirt, owner, settings.vm_dir.absolute())


def has_machines(state: State) -> bool:
    return bool(_machines_of(state))


def leftovers_of(
    engine: Engine | None, hypervisor: Hypervisor | None, owner: Owner, files: ContainerFiles
) -> Leftovers:
    found: dict[frozenset[Kind], Leftovers] = {}
    if engine is not None:
        in_docker = frozenset({Kind.CONTAINER, Kind.NETWORK, Kind.IMAGE, Kind.FILES})
        found[in_docker] = DockerLeftovers(engine, owner, files)
    if hypervisor is not None:
        found[frozenset({Kind.MACHINE})] = MachineLeftovers(hypervisor.libvirt, owner)
    return AllLeftovers(found)


def container_files(settings: AgentSettings, owner: Owner) -> ContainerFiles:
    """Beside the journal; several agents may have theirs in one directory."""
    return ContainerFiles(settings.state_path.parent / "files" / quote(owner.node_id, safe=""))
