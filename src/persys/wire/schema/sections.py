"""The mappings of spec files, in the order of the reference."""

from collections.abc import Mapping
from typing import NamedTuple

from persys.wire.schema.descriptions import (
    CLOUD_INIT,
    COMPOSE,
    CONTAINER,
    DISK,
    FILE,
    HEALTH_CHECK,
    LOGIN,
    MANAGED_VOLUME,
    NETWORK,
    PLACEMENT,
    POOL,
    PORT,
    RESOURCES,
    SIZE,
    SOFTWARE,
    VM,
    VOLUME,
    WORKLOAD,
    Field,
)
from persys.wire.schema.service_descriptions import SELECTOR, SERVICE, SERVICE_PORT
from persys.wire.schema.set_job_descriptions import (
    JOB,
    JOB_OPTIONS,
    PROMETHEUS,
    SCALE,
    SCHEDULE,
    SET,
    UPDATE,
)


class Section(NamedTuple):
    """A mapping of a spec file: its place in the file, and the message of the contract, if it has one."""

    title: str
    place: str
    text: str
    fields: Mapping[str, Field]
    message: str = ""
    short: str = ""  # the pattern of its short form
    short_text: str = ""
    definition: str = ""  # its name in the schema, if it is not that of the message


SECTIONS = (
    Section(
        "Workload",
        "",
        "The top level of a document. Set one of `container`, `compose` and `vm`.",
        WORKLOAD,
    ),
    Section(
        "Set",
        "",
        "A workload with one of these keys is a set: several members from one template, which are the other "
        "keys of the document except `revision_id`. The id of a set has at most 57 characters. "
        "See [Run several copies](../how-to/sets.md).",
        SET,
        definition="Set",
    ),
    Section("Update policy", "update", "", UPDATE, definition="UpdatePolicy"),
    Section("Scale policy", "scale", "Set at least one target.", SCALE, definition="ScalePolicy"),
    Section("Prometheus target", "scale.prometheus", "", PROMETHEUS, definition="Prometheus"),
    Section(
        "Job",
        "",
        "A workload with one of these keys is a job: its members run to completion. The other keys of the "
        "document are their template, except `revision_id` and `desired_state`. The restart policy is `no`, "
        "unless it is set to `on-failure`. The id of a job has at most 40 characters. "
        "See [Run jobs](../how-to/jobs.md).",
        JOB,
        definition="Job",
    ),
    Section("Job options", "job", "", JOB_OPTIONS, definition="JobOptions"),
    Section(
        "Schedule",
        "schedule",
        "",
        SCHEDULE,
        short=r"^\S+( +\S+){4}$",
        short_text='the five fields of `cron` as one text, `"0 3 * * *"`',
        definition="Schedule",
    ),
    Section(
        "Service",
        "",
        "A name with healthy members behind it. Set `port` or `ports`. "
        "See [Give workloads a name](../how-to/services.md).",
        SERVICE,
        definition="Service",
    ),
    Section(
        "Service port",
        "port, ports[]",
        "",
        SERVICE_PORT,
        "ServicePort",
        "^[0-9]{1,5}(/(tcp|udp|http))?$",
        '`80`, `"53/udp"` or `"8080/http"`',
    ),
    Section(
        "Service members",
        "members[]",
        "Set one of `set` and `labels`.",
        SELECTOR,
        "ServiceSelector",
    ),
    Section("Resources", "resources", "", RESOURCES, "ResourceRequirements"),
    Section("Container", "container", "", CONTAINER, "ContainerSpec"),
    Section(
        "Port",
        "container.ports[]",
        "",
        PORT,
        "Port",
        r"^([0-9]+:)?[0-9]+(/(tcp|udp))?$",
        '`"8080:80"`, `"8080:80/udp"`, or `"80"` for a host port that the node selects',
    ),
    Section(
        "Volume of the node",
        "container.volumes[]",
        "",
        VOLUME,
        "VolumeMount",
        "^/[^:]*:/[^:]*(:(ro|rw))?$",
        '`"/host/path:/container/path"`, with `:ro` for read-only',
    ),
    Section(
        "Managed volume",
        "container.managed_volumes[], vm.managed_volumes[]",
        "",
        MANAGED_VOLUME,
        "ManagedVolumeSpec",
    ),
    Section("File", "container.files[]", "", FILE, "FileMount"),
    Section(
        "Health check",
        "container.health_check, vm.health_check",
        "Types of a VM are `http` and `tcp` at its address, `guest-agent` and `none`; all others are of "
        "containers.",
        HEALTH_CHECK,
        "HealthCheck",
        r"^(http:[0-9]{1,5}(/\S*)?|tcp:[0-9]{1,5}|image|none|guest-agent)$",
        '`"http:8080/healthz"`, `"tcp:5432"`, `image` (that of the image), `guest-agent` (of a VM) or `none`',
    ),
    Section("Compose stack", "compose", "Set `inline_yaml` or `git_repo`.", COMPOSE, "ComposeSpec"),
    Section("Virtual machine", "vm", "", VM, "VMSpec"),
    Section("Disk", "vm.disks[]", "", DISK, "DiskConfig"),
    Section("Network", "vm.networks[]", "", NETWORK, "NetworkConfig"),
    Section("Login", "vm.login", "", LOGIN, "VMLogin"),
    Section("Cloud-init", "vm.cloud_init", "", CLOUD_INIT, "CloudInitConfig"),
    Section("Placement rules", "placement", "", PLACEMENT, "PlacementRules"),
    Section(
        "Node pool", "", "A file for `persysctl nodepool create`.", POOL, definition="NodePool"
    ),
    Section("Machine size", "sizes[]", "", SIZE, "MachineSize"),
    Section("Software", "software", "", SOFTWARE, definition="Software"),
)
