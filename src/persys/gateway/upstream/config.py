"""The cluster configuration: cluster.yaml, or a single cluster from PERSYS_SCHEDULER_ADDR.

A cluster lists its schedulers, or the SRV record that resolves to them.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from persys.errors import SettingsError
from persys.gateway.upstream.balancing import Strategy
from persys.infra.net.address import is_service

DEFAULT = "default"


class SchedulerEntry(Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    id: str = ""


class ClusterEntry(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str = ""
    routing_strategy: Strategy = Strategy.LEADER_ONLY
    schedulers: tuple[SchedulerEntry, ...] = ()
    discovery: str = ""  # the name of an SRV record


class ClusterFile(Struct, frozen=True, forbid_unknown_fields=True):
    clusters: tuple[ClusterEntry, ...]
    default_cluster_id: str = ""

    @property
    def default(self) -> str:
        return self.default_cluster_id or self.clusters[0].id


def read_clusters(path: Path) -> ClusterFile:
    """Read and validate cluster.yaml. Raises SettingsError with the file and the problem."""
    from persys.core.bounded_yaml import YamlError, load  # imported only when needed: start-up time

    try:
        content = load(path.read_text(encoding="utf-8"))
        found = msgspec.convert(content, ClusterFile, strict=False)
    except (OSError, UnicodeDecodeError, YamlError, msgspec.ValidationError) as err:
        raise SettingsError(f"{path}: {err}") from err
    problem = _problem(found)
    if problem:
        raise SettingsError(f"{path}: {problem}")
    return found


def one_cluster(addresses: tuple[str, ...]) -> ClusterFile:
    """A single cluster from scheduler addresses, or from the name of an SRV record."""
    if len(addresses) == 1 and is_service(addresses[0]):
        return ClusterFile((ClusterEntry(DEFAULT, discovery=addresses[0]),))
    if not addresses or not all(_is_address(address) for address in addresses):
        raise SettingsError(
            "PERSYS_SCHEDULER_ADDR: expected host:port, or the name of an SRV record"
        )
    schedulers = tuple(SchedulerEntry(address) for address in addresses)
    return ClusterFile((ClusterEntry(DEFAULT, schedulers=schedulers),))


def _problem(found: ClusterFile) -> str:
    ids = [cluster.id for cluster in found.clusters]
    if not ids:
        return "clusters: expected at least one"
    if len(set(ids)) < len(ids):
        return "clusters: two have the same id"
    if found.default not in ids:
        return f"default_cluster_id: there is no cluster {found.default}"
    for cluster in found.clusters:
        if not cluster.id or "/" in cluster.id:
            return f"clusters: invalid id {cluster.id!r}: expected a name without /"
        if bool(cluster.discovery) == bool(cluster.schedulers):
            return f"cluster {cluster.id}: expected either schedulers or discovery"
        if cluster.discovery and not is_service(cluster.discovery):
            return f"cluster {cluster.id}: discovery: expected the name of an SRV record, _a._b.c"
        for scheduler in cluster.schedulers:
            if not _is_address(scheduler.address):
                return f"cluster {cluster.id}: {scheduler.address!r}: expected host:port"
    return ""


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal()
