"""Workload specs: container, Compose stack or VM, each tagged with its type when stored.

Defaults mean 'not set', so that equal intents encode to equal bytes. Structs with `gc=False` have no
reference cycles, and there are very many: the collector skips them.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from persys.model.placement import Resources

LOCAL_DRIVER = "local"  # for volumes on the node's own file system
STOP_GRACE_SECONDS = 10
MACHINE_STOP_GRACE_SECONDS = 60  # an operating system has to shut down


class WorkloadType(StrEnum):
    CONTAINER = "container"
    COMPOSE = "compose"
    VM = "vm"


class VolumeMount(Struct, frozen=True, gc=False):
    host_path: str
    container_path: str
    read_only: bool = False


class Port(Struct, frozen=True, gc=False):
    container_port: int
    host_port: int = 0  # 0: the runtime picks a free one
    protocol: str = "tcp"


class ManagedVolume(Struct, frozen=True, gc=False):
    name: str
    mount_path: str = ""
    driver: str = LOCAL_DRIVER
    size_gb: int = 0
    access_mode: str = ""
    fs_type: str = ""
    read_only: bool = False
    retain: bool = False


def local_gb(volumes: Iterable[ManagedVolume]) -> int:
    """Disk space on the node; volumes of other drivers use none."""
    return sum(volume.size_gb for volume in volumes if volume.driver == LOCAL_DRIVER)


class RestartPolicy(Struct, frozen=True, gc=False):
    """`name` is no, always, on-failure or unless-stopped; `retries_max` is for on-failure, 0: no limit."""

    name: str = "unless-stopped"
    retries_max: int = 0

    @property
    def runs_to_completion(self) -> bool:
        """Whether exit code 0 means completed, not failed."""
        return self.name in ("no", "on-failure")


class PullPolicy(StrEnum):
    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"
    NEVER = "Never"


class HealthType(StrEnum):
    NONE = "none"  # not even the check of the image
    IMAGE = "image"  # the check of the image, if any
    HTTP = "http"
    TCP = "tcp"
    EXEC = "exec"
    GUEST_AGENT = "guest-agent"  # of a VM: its guest agent responds


class HealthCheck(Struct, frozen=True, omit_defaults=True, gc=False):
    type: HealthType = HealthType.IMAGE
    port: int = 0
    path: str = ""
    command: tuple[str, ...] = ()
    interval_seconds: int = 0  # 0, here and below: the node's default
    timeout_seconds: int = 0
    retries: int = 0
    start_period_seconds: int = 0
    restart_unhealthy: bool = False


class FileMount(Struct, frozen=True, omit_defaults=True, gc=False):
    """A small file in a container. Its content may be one reference to a secret."""

    path: str
    content: bytes = b""
    mode: int = 0  # 0: not set
    secret: bool = False  # the content is the value of a secret; only in orders to agents


class ContainerSpec(Struct, frozen=True, tag="container", gc=False):
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    volumes: tuple[VolumeMount, ...] = ()
    managed_volumes: tuple[ManagedVolume, ...] = ()
    ports: tuple[Port, ...] = ()
    restart: RestartPolicy = RestartPolicy()
    privileged: bool = False
    pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    pids_max: int = 0  # 0: the node's default
    stop_grace_seconds: int = 0  # 0: the node's default
    init: bool = False
    labels: dict[str, str] = {}
    image_credential: str = ""  # a name in the configuration of the node
    health: HealthCheck = HealthCheck()
    files: tuple[FileMount, ...] = ()
    # Limits as the agent enforces them. The scheduler derives them from the workload's resources.
    cpu_millicores: int = 0
    cpu_shares: int = 0
    memory_bytes: int = 0
    memory_swap_bytes: int = 0
    disk_gb: int = 0  # outside of volumes


class StackNeeds(Struct, frozen=True, omit_defaults=True):
    """The requirements of the services of a Compose file, as far as its text shows them."""

    ports: tuple[Port, ...] = ()  # only those with a host port
    cpu_millicores: int = 0
    memory_mb: int = 0
    privileged: bool = False
    privileged_by: str = ""  # the path of the first key that needs a privileged node
    holds_data: bool = False
    restarts: str = ""  # the first service that Docker restarts when it exits


class ComposeSpec(Struct, frozen=True, tag="compose"):
    """`source_type` is inline (`yaml` is the plain text) or git.

    `needs` is derived from the text, so it is not part of the revision. The content of a repository is
    unknown until a node clones it.
    """

    source_type: str = "inline"
    yaml: str = ""
    git_repo: str = ""
    git_ref: str = ""
    env: dict[str, str] = {}
    project_name: str = ""  # "": derived from the workload id
    git_path: str = ""  # of the Compose file in the repository
    git_credential: str = ""  # names in the configuration of the node
    image_credential: str = ""
    delete_volumes: bool = False  # with the workload; otherwise they stay
    needs: StackNeeds = StackNeeds()
    reserved: Resources = Resources()  # by the scheduler, from the workload's resources
    project_derived: bool = False  # the scheduler derived project_name; only in orders to agents


class Disk(Struct, frozen=True):
    """A disk, by pool and size or by path."""

    pool_name: str = ""
    size_gb: int = 0
    device: str = ""
    path: str = ""
    format: str = ""
    type: str = ""
    boot: bool = False


class Network(Struct, frozen=True):
    name: str = ""  # a libvirt network or a bridge
    dhcp: bool = False
    ip_address: str = ""  # with or without the length of the prefix
    mac_address: str = ""
    gateway: str = ""
    nameservers: tuple[str, ...] = ()


class CloudInit(Struct, frozen=True):
    user_data: str = ""
    meta_data: str = ""
    network_config: str = ""
    vendor_data: str = ""


class Login(Struct, frozen=True, omit_defaults=True):
    """A login of a VM. A plain password is hashed before it gets here."""

    user: str = ""  # "": the image's own default user
    ssh_keys: tuple[str, ...] = ()
    password_hash: str = ""


class VMSpec(Struct, frozen=True, tag="vm"):
    vcpus: int
    memory_mb: int
    disks: tuple[Disk, ...] = ()
    networks: tuple[Network, ...] = ()
    cloud_init: CloudInit = CloudInit()
    cloud_init_base64: str = ""  # user data in one string, which agents also accept
    os_image: str = ""
    managed_volumes: tuple[ManagedVolume, ...] = ()
    name: str = ""  # "": derived from the workload id
    metadata: dict[str, str] = {}
    restart: RestartPolicy = RestartPolicy()
    stop_grace_seconds: int = 0  # 0: the node's default
    login: Login = Login()
    health: HealthCheck = HealthCheck()


def is_address(os_image: str) -> bool:
    """Whether an image is a URL, not a name in the image store of a node."""
    return "://" in os_image


Spec = ContainerSpec | ComposeSpec | VMSpec


def type_of(spec: Spec) -> WorkloadType:
    match spec:
        case ContainerSpec():
            return WorkloadType.CONTAINER
        case ComposeSpec():
            return WorkloadType.COMPOSE
        case VMSpec():
            return WorkloadType.VM


def managed_volumes_of(spec: Spec) -> tuple[ManagedVolume, ...]:
    """Compose manages the volumes of a stack."""
    match spec:
        case ContainerSpec() | VMSpec():
            return spec.managed_volumes
        case ComposeSpec():
            return ()


def stop_grace_seconds(spec: Spec) -> int:
    """The grace period of a workload with stop_after. Scheduler and agent must use the same value."""
    match spec:
        case ContainerSpec():
            return spec.stop_grace_seconds or STOP_GRACE_SECONDS
        case VMSpec():
            return spec.stop_grace_seconds or MACHINE_STOP_GRACE_SECONDS
        case _:
            return STOP_GRACE_SECONDS
