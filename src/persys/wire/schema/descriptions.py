"""Text, default and example of every field of workloads and node pools, in the order of the reference.

A test compares the names with the contract, and reads each example. Limits that the decoders check, beyond
those of `wire/limits/table.py`, are set here from the constants of the decoders.
"""

from collections.abc import Mapping
from typing import NamedTuple

from persys.core.nodepools import checks as pool_checks
from persys.model.placement import PRIORITY_DEFAULT, PRIORITY_MAX, Offload, Strategy
from persys.model.spec import HealthType, PullPolicy, WorkloadType
from persys.wire.control.nodepools import IDLE_AFTER_SECONDS, PROVISION_DEADLINE_SECONDS
from persys.wire.control.placement import CONSTRAINTS_MAX, SPREAD_OVER_MAX, TOLERATIONS_MAX
from persys.wire.spec import files, health, login, vm_rules

Example = str | int | float | bool | list[object] | dict[str, object]


class Field(NamedTuple):
    text: str
    example: Example
    default: str | int | bool | None = None  # None: not set
    required: bool = False
    choices: tuple[str, ...] = ()
    pattern: str = ""
    least: int | None = None
    most: int | None = None
    items_max: int | None = None


ID_PATTERN = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
PERCENT_PATTERN = "^[0-9]{1,5} *%$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$|^[0-9]+(\.[0-9]+)?$"
RESTART_PATTERN = "^on-failure:[0-9]+$"
_RESTARTS = ("no", "always", "on-failure", "unless-stopped")
_RESTART = Field(
    "when it is started again after it has exited; `on-failure:N` limits the number of restarts",
    "on-failure:3",
    "unless-stopped",
    choices=_RESTARTS,
    pattern=RESTART_PATTERN,
)
_SECONDS = health.SECONDS_MAX

WORKLOAD: Mapping[str, Field] = {
    "id": Field(
        "id of the workload, unique in the cluster: a DNS label",
        "web",
        required=True,
        pattern=ID_PATTERN,
    ),
    "container": Field("the spec of a container", {"image": "nginx:1.27"}),
    "compose": Field(
        "the spec of a Compose stack",
        {"inline_yaml": "services: {web: {image: 'nginx:1.27'}}"},
    ),
    "vm": Field("the spec of a virtual machine", {"vcpus": 2, "memory_mb": 2048}),
    "type": Field(
        "type of the workload; follows from the spec if it is not set",
        "container",
        choices=tuple(kind.value for kind in WorkloadType),
    ),
    "resources": Field(
        "resources that are reserved on the node and limit the workload", {"memory_mb": 256}
    ),
    "placement": Field("rules for the selection of a node", {"constraints": ["zone = eu"]}),
    "stop_after": Field(
        "the agent stops the workload after this time without a scheduler; at least "
        "`SCHEDULER_NODE_LEASE`",
        "90s",
        pattern=DURATION_PATTERN,
    ),
    "stop_after_seconds": Field("the same, in seconds", 90),
    "networks": Field(
        "networks that the workload joins, at most 8; the interfaces of a VM are `vm.networks`",
        ["backend"],
    ),
    "desired_state": Field(
        "the state to reach",
        "Stopped",
        "Running",
        choices=("Running", "Stopped", "Deleted", "running", "stopped", "deleted"),
    ),
    "metadata": Field("texts of the user, shown with the workload", {"team": "shop"}),
    "revision_id": Field(
        "id of this revision, for clients that compute it; default: a hash of the spec", "r1"
    ),
}

RESOURCES: Mapping[str, Field] = {
    "cpu_millicores": Field(
        "CPU in thousandths of a core; default of a VM: its `vcpus`, of a stack: the sum of its limits",
        500,
        0,
    ),
    "memory_mb": Field(
        "memory in MiB; default of a VM: its `memory_mb`, of a stack: the sum of its limits", 256, 0
    ),
    "disk_gb": Field("disk space in GiB, including local volumes", 10, 0),
}

CONTAINER: Mapping[str, Field] = {
    "image": Field("image to run", "nginx:1.27", required=True),
    "command": Field(
        "command and its arguments; default: of the image", ["nginx", "-g", "daemon off;"]
    ),
    "args": Field("arguments that are appended to `command`", ["--verbose"]),
    "env": Field(
        "environment variables; a value `secret://NAME` refers to a secret",
        {"DB_PASSWORD": "secret://db-password"},
    ),
    "ports": Field("published ports", ["8080:80", "53:53/udp"]),
    "volumes": Field("paths of the node that are mounted", ["/srv/site:/site:ro"]),
    "managed_volumes": Field(
        "volumes that the agent creates", [{"name": "data", "mount_path": "/data"}]
    ),
    "files": Field(
        "small files in the container",
        [{"path": "/etc/app.conf", "content": "a=1"}],
        items_max=files.FILES_MAX,
    ),
    "health_check": Field("health check; default: that of the image", "http:80/healthz"),
    "restart_policy": _RESTART,
    "image_pull_policy": Field(
        "when the image is pulled",
        "Always",
        "IfNotPresent",
        choices=tuple(policy.value for policy in PullPolicy),
    ),
    "image_credential": Field(
        "name of the registry credential in the configuration of the node", "team-registry"
    ),
    "stop_grace_seconds": Field(
        "seconds between SIGTERM and SIGKILL; 0: `PERSYS_STOP_GRACE` of the node", 30, 0
    ),
    "pids_max": Field("limit of processes; 0: `PERSYS_PIDS_MAX` of the node", 512, 0),
    "init": Field("run an init process that forwards signals and reaps processes", True, False),
    "labels": Field("labels of the container; names with `persys.` are reserved", {"team": "shop"}),
    "privileged": Field(
        "run privileged, on nodes with `PERSYS_ALLOW_PRIVILEGED` only", True, False
    ),
}

PORT: Mapping[str, Field] = {
    "container_port": Field("port in the container", 80, required=True, least=1),
    "host_port": Field("port of the node; 0: the node selects a free one", 8080, 0),
    "protocol": Field("protocol", "udp", "tcp", choices=("tcp", "udp")),
}

VOLUME: Mapping[str, Field] = {
    "host_path": Field("absolute path on the node", "/srv/site", required=True),
    "container_path": Field("absolute path in the container", "/site", required=True),
    "read_only": Field("mount it read-only", True, False),
}

MANAGED_VOLUME: Mapping[str, Field] = {
    "name": Field("name, unique in the workload", "data", required=True, pattern=ID_PATTERN),
    "mount_path": Field(
        "absolute path in the container; required for containers", "/var/lib/postgresql/data"
    ),
    "driver": Field("storage driver", "local", "local", choices=("local", "nfs", "ceph-rbd")),
    "size_gb": Field("size in GiB; 0: limited by the pool only", 20, 0),
    "access_mode": Field(
        "`ReadWriteMany` shares the files of an `nfs` volume between workloads",
        "ReadWriteOnce",
        "ReadWriteOnce",
        choices=("ReadWriteOnce", "ReadWriteMany"),
    ),
    "fs_type": Field("file system of a volume with a size", "xfs", "ext4"),
    "read_only": Field("mount it read-only", True, False),
    "retain_policy": Field(
        "whether the data is deleted with the workload",
        "Retain",
        "Delete",
        choices=("Delete", "Retain"),
    ),
}

HEALTH_CHECK: Mapping[str, Field] = {
    "type": Field(
        "default: `exec` with a command, `http` with a path, `tcp` with only a port, else `image`",
        "http",
        choices=tuple(kind.value for kind in HealthType),
    ),
    "port": Field("port in the container or VM, for `http` and `tcp`", 80, least=1),
    "path": Field("URL path, for `http`; status 200 to 399 is healthy", "/healthz", "/"),
    "command": Field("command, for `exec`; exit code 0 is healthy", ["pg_isready"]),
    "interval_seconds": Field("seconds between two checks; 0: 10", 5, 0, least=0, most=_SECONDS),
    "timeout_seconds": Field("timeout of a check; 0: 5", 2, 0, least=0, most=_SECONDS),
    "retries": Field(
        "consecutive failures until unhealthy; 0: 3", 3, 0, least=0, most=health.FAILURES_MAX
    ),
    "start_period_seconds": Field(
        "time in which failures do not count before the first success",
        30,
        0,
        least=0,
        most=_SECONDS,
    ),
    "restart_unhealthy": Field("restart an unhealthy container", True, False),
}

FILE: Mapping[str, Field] = {
    "path": Field("absolute path in the container", "/etc/app/app.conf", required=True),
    "content": Field("content, or one reference `secret://NAME`", "listen: 8080"),
    "mode": Field(
        "permissions in octal, as in chmod; default: 0444, with a secret 0400",
        "0440",
        least=0,
        most=files.MODE_MAX,
    ),
}

COMPOSE: Mapping[str, Field] = {
    "inline_yaml": Field(
        "the Compose file, plain or base64", "services: {web: {image: 'nginx:1.27'}}"
    ),
    "git_repo": Field(
        "URL of the repository: https, ssh (also `git@host:path`) or file",
        "https://git.example.com/shop/deploy.git",
    ),
    "git_ref": Field("branch, tag or commit; default: HEAD of the repository", "main"),
    "git_path": Field("directory or file in the repository; default: the top", "production"),
    "git_credential": Field(
        "name of the credential for the repository in the configuration of the node", "shop-forge"
    ),
    "image_credential": Field(
        "name of the registry credential in the configuration of the node", "team-registry"
    ),
    "source_type": Field(
        "source of the file; follows from the other fields if it is not set",
        "git",
        choices=("inline", "git"),
    ),
    "env": Field(
        "variables of the Compose file; a value `secret://NAME` refers to a secret",
        {"DOMAIN": "shop.example.com"},
    ),
    "volume_policy": Field(
        "whether named volumes are deleted with the workload",
        "Delete",
        "Retain",
        choices=("Retain", "Delete"),
    ),
    "project_name": Field(
        "name of the Compose project; default: derived from the workload id and the node",
        "shop",
        pattern="^[a-z0-9][-_a-z0-9]{0,99}$",
    ),
}

VM: Mapping[str, Field] = {
    "vcpus": Field("virtual CPUs", 2, required=True, least=1, most=vm_rules.VCPUS_MAX),
    "memory_mb": Field("memory in MiB", 2048, required=True, least=1),
    "os_image": Field(
        "image of the first disk: a name in the image store of the nodes, or an http(s) URL",
        "debian-12",
    ),
    "disks": Field(
        "disks; default: one of the size of the image", [{"mount_point": "vda", "size_gb": 20}]
    ),
    "networks": Field("network interfaces", [{"bridge": "default", "dhcp": True}]),
    "login": Field(
        "user of the guest", {"user": "ann", "ssh_keys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ann"]}
    ),
    "cloud_init": Field("cloud-init data", {"user_data": "#cloud-config\npackages: [nginx]\n"}),
    "managed_volumes": Field("volumes, each attached as a disk", [{"name": "data", "size_gb": 50}]),
    "health_check": Field("health check; default: none", "guest-agent"),
    "restart_policy": _RESTART,
    "stop_grace_seconds": Field(
        "seconds for a shutdown before the VM is powered off; 0: `PERSYS_VM_STOP_GRACE` of the node",
        90,
        0,
    ),
}

DISK: Mapping[str, Field] = {
    "mount_point": Field("device name in the guest", "vdb", pattern="^[a-z]{1,8}[0-9]{0,3}$"),
    "size_gb": Field("size in GiB; 0: of the image", 100, 0),
    "pool_name": Field("libvirt storage pool; default: `PERSYS_VM_POOL` of the node", "fast"),
}

NETWORK: Mapping[str, Field] = {
    "bridge": Field("libvirt network or bridge of the node", "default"),
    "dhcp": Field("get the address by DHCP", True, False),
    "static_ip": Field("address, with or without the length of the prefix", "192.168.122.50"),
    "gateway": Field("gateway; needs `static_ip`", "192.168.122.1"),
    "nameservers": Field(
        "addresses of DNS servers", ["192.168.122.1"], items_max=vm_rules.NAMESERVERS_MAX
    ),
    "mac_address": Field(
        "MAC address; default: derived from the workload id",
        "52:54:00:12:34:56",
        pattern="^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$",
    ),
}

LOGIN: Mapping[str, Field] = {
    "user": Field("user name; default: the user of the image", "ann"),
    "ssh_keys": Field(
        "public keys in OpenSSH format",
        ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINr+mb8CMXrp1D1BTn4+G0vxN+Don1HYSQgClYygAjwc ann"],
        items_max=login.SSH_KEYS_MAX,
    ),
    "password_hash": Field(
        "crypt(3) hash of the password, for example of `openssl passwd -6`",
        "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.",
    ),
}

_BYTES = f"at most {vm_rules.USER_DATA_BYTES_MAX >> 10} KiB"
_YAML = f"YAML, at most {vm_rules.META_DATA_BYTES_MAX >> 10} KiB"
CLOUD_INIT: Mapping[str, Field] = {
    "user_data": Field(f"user data; {_BYTES}", "#cloud-config\npackages: [nginx]\n"),
    "vendor_data": Field(f"vendor data; {_BYTES}", "#cloud-config\n{}\n"),
    "meta_data": Field(f"meta data; {_YAML}; default: generated", "local-hostname: shop\n"),
    "network_config": Field(f"network configuration; {_YAML}; default: generated", "version: 2\n"),
}

PLACEMENT: Mapping[str, Field] = {
    "constraints": Field(
        "conditions on labels and facts of the node",
        ["zone = eu", "node.memory_mb > 8000"],
        items_max=CONSTRAINTS_MAX,
    ),
    "tolerations": Field(
        "tolerated taints: `key`, `key=value`, or `*` for all",
        ["team=shop", "gpu"],
        items_max=TOLERATIONS_MAX,
    ),
    "group": Field("workloads of one group are placed on different nodes if possible", "shop"),
    "anti_affinity": Field(
        "`required`: two workloads of the group never share a node; needs `group`",
        "required",
        "preferred",
        choices=("preferred", "required"),
    ),
    "spread_over": Field(
        "labels over whose values the group is balanced, the most important first; needs `group`",
        ["zone", "rack"],
        items_max=SPREAD_OVER_MAX,
    ),
    "strategy": Field(
        "emptiest or fullest node that fits; default: `SCHEDULER_PLACEMENT_STRATEGY`",
        "binpack",
        choices=tuple(strategy.value for strategy in Strategy),
    ),
    "priority": Field(
        "order of pending workloads, the highest first",
        80,
        PRIORITY_DEFAULT,
        least=0,
        most=PRIORITY_MAX,
    ),
    "offload": Field(
        "whether nodes of higher tiers may be used",
        "when-full",
        Offload.NEVER.value,
        choices=tuple(word.value for word in Offload),
    ),
    "offload_data": Field("also offload a workload with data; needs `offload`", True, False),
    "return": Field(
        "`when-free`: return to tier 0 when it has capacity; needs `offload: when-full`",
        "when-free",
        choices=("when-free",),
    ),
}

POOL: Mapping[str, Field] = {
    "kind": Field("marks a node pool file", "nodepool", required=True, choices=("nodepool",)),
    "pool_id": Field(
        "id of the pool",
        "burst",
        required=True,
        pattern="^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
    ),
    "provider": Field("`ec2`, `libcloud`, `exec` or `libvirt`", "ec2", required=True),
    "region": Field("region, as the provider names it", "eu-central-1"),
    "image": Field("image of the machines, as the provider names it", "ami-0123456789abcdef0"),
    "sizes": Field(
        "sizes of machines",
        [{"name": "t3.large", "cpu_millicores": 2000, "memory_mb": 7600, "hour_price": 0.09}],
        required=True,
        items_max=pool_checks.SIZES_MAX,
    ),
    "min": Field("machines that always exist", 1, 0, least=0, most=pool_checks.MACHINES_MAX),
    "max": Field("limit of machines", 10, required=True, least=0, most=pool_checks.MACHINES_MAX),
    "spend_per_hour_max": Field(
        "limit of the sum of the prices per hour of all machines", 2.5, required=True
    ),
    "idle_after": Field(
        "time without workloads before a machine is drained; 1m to 7d",
        "20m",
        f"{IDLE_AFTER_SECONDS // 60}m",
        pattern=DURATION_PATTERN,
    ),
    "provision_deadline": Field(
        "time for a machine to become a ready node; 1m to 7d",
        "10m",
        f"{PROVISION_DEADLINE_SECONDS // 60}m",
        pattern=DURATION_PATTERN,
    ),
    "labels": Field("labels of the nodes", {"pool": "burst"}, items_max=pool_checks.LABELS_MAX),
    "taints": Field("taints of new nodes", ["team=shop"], items_max=pool_checks.LABELS_MAX),
    "tier": Field("tier of the nodes", 1, 0, least=0, most=pool_checks.TIER_MAX),
    "software": Field(
        "deb or wheel bundle that a machine installs; default: the image contains the agent",
        {"url": "https://files.example.com/persys.deb", "sha256": "0" * 64},
    ),
    "options": Field("options of the provider", {"subnet_id": "subnet-1"}),
    "credentials": Field(
        "name of a secret with a JSON object of texts; default: those of the scheduler", "aws"
    ),
}

SIZE: Mapping[str, Field] = {
    "name": Field("name of the size at the provider", "t3.large", required=True),
    "cpu_millicores": Field("CPU that a node of this size offers at least", 2000, required=True),
    "memory_mb": Field("memory that it offers at least, in MiB", 7600, required=True),
    "disk_gb": Field("disk space that it offers at least, in GiB", 40, 0),
    "hour_price": Field("price per hour; all sizes have the same currency", 0.09, 0),
}

SOFTWARE: Mapping[str, Field] = {
    "url": Field("http(s) URL of the file", "https://files.example.com/persys.deb", required=True),
    "sha256": Field("its SHA-256", "0" * 64, required=True, pattern="^[0-9a-f]{64}$"),
}
