"""Text, default and example of every field of services, in the order of the reference."""

from collections.abc import Mapping

from persys.core.dns_names import PORT_MAX
from persys.core.services import checks
from persys.model import service as services
from persys.wire.schema.descriptions import WORKLOAD, Field
from persys.wire.specfile import service_file

SERVICE: Mapping[str, Field] = {
    "kind": Field("marks a service", "service", required=True, choices=(service_file.KIND,)),
    "id": Field(
        "id of the service, and its name in DNS: a DNS label",
        "web",
        required=True,
        pattern=WORKLOAD["id"].pattern,
    ),
    "port": Field("the only port, instead of `ports`", 80, least=1, most=PORT_MAX),
    "ports": Field(
        "ports on which the members listen",
        [{"name": "http", "port": 80, "protocol": "http"}],
        items_max=checks.PORTS_MAX,
    ),
    "members": Field(
        "which workloads are members; a workload is one by the first entry that matches it",
        [{"set": "web", "weight": 9}, {"labels": {"app": "web"}}],
        required=True,
        items_max=checks.SELECTORS_MAX,
    ),
    "hosts": Field(
        "host names for which a reverse proxy routes requests here; needs one port with protocol `http`",
        ["shop.example.org"],
        items_max=checks.HOSTS_MAX,
    ),
}

SERVICE_PORT: Mapping[str, Field] = {
    "name": Field(
        "name of the port, a label of its SRV records; default: the number",
        "http",
        pattern="^[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?$",
    ),
    "port": Field(
        "port of the container or VM; a container or stack must publish it",
        80,
        required=True,
        least=1,
        most=PORT_MAX,
    ),
    "protocol": Field(
        "`http` is TCP for which a reverse proxy should speak HTTP",
        "http",
        services.ServiceProtocol.TCP.value,
        choices=tuple(word.value for word in services.ServiceProtocol),
    ),
}

SELECTOR: Mapping[str, Field] = {
    "set": Field("members of this set", "web"),
    "labels": Field(
        "workloads with all these labels: in their `metadata`, or in `labels` of their container",
        {"app": "web"},
        items_max=checks.LABELS_MAX,
    ),
    "weight": Field(
        "share of requests per member, compared with other entries",
        9,
        services.WEIGHT_DEFAULT,
        least=1,
        most=checks.WEIGHT_MAX,
    ),
}
