"""What a workload is made of: one of three specs, each tagged with its type when stored.

Defaults are the values that mean 'not said', so that equal intentions encode to equal bytes.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from persys.model.resources import Resources

LOCAL_DRIVER = "local"  # of volumes on the node's own file system


class WorkloadType(StrEnum):
    CONTAINER = "container"
    COMPOSE = "compose"
    VM = "vm"


class VolumeMount(Struct, frozen=True):
    host_path: str
    container_path: str
    read_only: bool = False


class Port(Struct, frozen=True):
    container_port: int
    host_port: int = 0  # 0: the runtime picks a free one
    protocol: str = "tcp"


class ManagedVolume(Struct, frozen=True):
    name: str
    mount_path: str = ""
    driver: str = LOCAL_DRIVER
    size_gb: int = 0
    access_mode: str = ""
    fs_type: str = ""
    read_only: bool = False
    retain: bool = False


def local_gb(volumes: Iterable[ManagedVolume]) -> int:
    """What they take on their node; volumes of the other drivers are elsewhere."""
    return sum(volume.size_gb for volume in volumes if volume.driver == LOCAL_DRIVER)


class RestartPolicy(Struct, frozen=True):
    """`name` is no, always, on-failure or unless-stopped; `retries_max` is for on-failure, 0: no limit."""

    name: str = "unless-stopped"
    retries_max: int = 0

    @property
    def runs_to_completion(self) -> bool:
        """Exit code 0 is the end of the work, not a failure."""
        return self.name in ("no", "on-failure")


class PullPolicy(StrEnum):
    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"
    NEVER = "Never"


class HealthType(StrEnum):
    NONE = "none"  # not even what the image brings
    IMAGE = "image"  # what the image brings, if anything
    HTTP = "http"
    TCP = "tcp"
    EXEC = "exec"


class HealthCheck(Struct, frozen=True, omit_defaults=True):
    type: HealthType = HealthType.IMAGE
    port: int = 0
    path: str = ""
    command: tuple[str, ...] = ()
    interval_seconds: int = 0  # 0, here and below: the node's default
    timeout_seconds: int = 0
    retries: int = 0
    start_period_seconds: int = 0
    restart_unhealthy: bool = False


class FileMount(Struct, frozen=True, omit_defaults=True):
    """A small file that the container finds at its path. Its content may be one reference to a secret."""

    path: str
    content: bytes = b""
    mode: int = 0  # 0: not said
    secret: bool = False  # the content is the value of a secret: only in orders to agents


class ContainerSpec(Struct, frozen=True, tag="container"):
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
    image_credential: str = ""  # a name that the node knows
    health: HealthCheck = HealthCheck()
    files: tuple[FileMount, ...] = ()
    # Limits as the agent enforces them. The scheduler derives them from the workload's resources.
    cpu_millicores: int = 0
    cpu_shares: int = 0
    memory_bytes: int = 0
    memory_swap_bytes: int = 0
    disk_gb: int = 0  # outside of volumes


class StackNeeds(Struct, frozen=True, omit_defaults=True):
    """What the services of a Compose file ask of a node, as far as its text tells."""

    ports: tuple[Port, ...] = ()  # only those with a host port
    cpu_millicores: int = 0
    memory_mb: int = 0
    privileged: bool = False
    privileged_by: str = ""  # the path of the first key that needs a privileged node
    holds_data: bool = False


class ComposeSpec(Struct, frozen=True, tag="compose"):
    """`source_type` is inline (`yaml` holds the plain text) or git.

    `needs` is read from the text, never said beside it, and so no part of the revision. What a repository
    holds is not known before a node fetches it.
    """

    source_type: str = "inline"
    yaml: str = ""
    git_repo: str = ""
    git_ref: str = ""
    env: dict[str, str] = {}
    project_name: str = ""  # "": derived from the workload id
    git_path: str = ""  # of the Compose file in the repository
    git_credential: str = ""  # names that the node knows
    image_credential: str = ""
    delete_volumes: bool = False  # with the workload; otherwise they stay
    needs: StackNeeds = StackNeeds()
    reserved: Resources = Resources()  # by the scheduler, from the workload's resources
    project_derived: bool = False  # the scheduler made project_name; only in orders to agents


class Disk(Struct, frozen=True):
    """A disk as either contract says it: by pool and size, or by path."""

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
    """Who may log in to a machine; a plain password never comes this far."""

    user: str = ""  # "": the image's own default user
    ssh_keys: tuple[str, ...] = ()
    password_hash: str = ""


class VMSpec(Struct, frozen=True, tag="vm"):
    vcpus: int
    memory_mb: int
    disks: tuple[Disk, ...] = ()
    networks: tuple[Network, ...] = ()
    cloud_init: CloudInit = CloudInit()
    cloud_init_base64: str = ""  # user data as agents also take it, in one opaque string
    os_image: str = ""
    managed_volumes: tuple[ManagedVolume, ...] = ()
    name: str = ""  # "": derived from the workload id
    metadata: dict[str, str] = {}
    restart: RestartPolicy = RestartPolicy()
    stop_grace_seconds: int = 0  # 0: the node's default
    login: Login = Login()


def is_address(os_image: str) -> bool:
    """Whether an image is fetched from somewhere, and not taken from a node's store by its name."""
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
