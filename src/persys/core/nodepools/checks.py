"""Which node pools are valid. An error names the field, the value and what is expected."""

import math
import re

from persys.errors import InvalidError
from persys.model import ids
from persys.model.nodepool import MachineSize, NodePool, machine_name

MACHINES_MAX = 1000
SIZES_MAX = 32
LABELS_MAX = 64
SECONDS_MIN = 60
SECONDS_MAX = 7 * 24 * 3600
TIER_MAX = 100
_NUMBER_LONGEST = 999_999
_PRICE_MAX = 1_000_000.0
_POOL_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_WORD = re.compile(r"[a-z][a-z0-9-]{0,31}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_pool_id(pool_id: str) -> None:
    if not _POOL_ID.fullmatch(pool_id):
        raise InvalidError(
            "pool_id",
            f"invalid node pool id {pool_id[:80]!r}: expected 1 to 40 of a-z, 0-9 and '-', beginning and"
            " ending with a letter or digit, for example burst",
        )


def check_pool(pool: NodePool, cluster_id: str) -> None:
    """Raises InvalidError."""
    check_pool_id(pool.pool_id)
    try:
        ids.workload_id(machine_name(cluster_id, pool.pool_id, _NUMBER_LONGEST))
    except InvalidError as err:
        raise InvalidError(
            "pool_id",
            f"invalid node pool id {pool.pool_id!r}: the name of a machine,"
            f" {machine_name(cluster_id, pool.pool_id, _NUMBER_LONGEST)}, must be {ids.WORKLOAD_ID_RULE}",
        ) from err
    if not _WORD.fullmatch(pool.provider):
        raise InvalidError(
            "provider",
            f"invalid provider {pool.provider[:80]!r}: expected its name, for example ec2",
        )
    _check_sizes(pool)
    _check_limits(pool)
    _check_node_settings(pool)
    _check_software(pool)


def _check_sizes(pool: NodePool) -> None:
    if not 1 <= len(pool.sizes) <= SIZES_MAX:
        raise InvalidError("sizes", f"{len(pool.sizes)} sizes: expected 1 to {SIZES_MAX}")
    names = [size.name for size in pool.sizes]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidError("sizes", f"size {doubles[0]!r} occurs twice: expected distinct names")
    for size in pool.sizes:
        _check_size(size)


def _check_size(size: MachineSize) -> None:
    if not size.name:
        raise InvalidError("sizes.name", "is missing: expected the provider's name of the size")
    has = size.resources
    if has.cpu_millicores <= 0 or has.memory_mb <= 0 or has.disk_gb < 0:
        raise InvalidError(
            "sizes.resources", f"size {size.name!r} has no cpu or no memory: expected both above 0"
        )
    _check_price("sizes.hour_price", size.hour_price)


def _check_limits(pool: NodePool) -> None:
    if not 0 <= pool.max_machines <= MACHINES_MAX:
        raise InvalidError("max", f"invalid max {pool.max_machines}: expected 0 to {MACHINES_MAX}")
    if not 0 <= pool.min_machines <= pool.max_machines:
        raise InvalidError(
            "min", f"invalid min {pool.min_machines}: expected 0 to max, {pool.max_machines}"
        )
    _check_price("spend_per_hour_max", pool.spend_per_hour_max)
    least = min(size.hour_price for size in pool.sizes)
    if round(least * max(1, pool.min_machines), 6) > pool.spend_per_hour_max and pool.max_machines:
        raise InvalidError(
            "spend_per_hour_max",
            f"invalid limit {pool.spend_per_hour_max:g}: {max(1, pool.min_machines)} of the cheapest"
            f" machines cost {least * max(1, pool.min_machines):g} per hour",
        )
    for field, seconds in (
        ("idle_after", pool.idle_after_seconds),
        ("provision_deadline", pool.provision_deadline_seconds),
    ):
        if not SECONDS_MIN <= seconds <= SECONDS_MAX:
            raise InvalidError(
                field, f"invalid duration {seconds} s: expected 1m to 7d, for example 10m"
            )


def _check_node_settings(pool: NodePool) -> None:
    if not 0 <= pool.tier <= TIER_MAX:
        raise InvalidError("tier", f"invalid tier {pool.tier}: expected 0 to {TIER_MAX}")
    for field, count in (("labels", len(pool.labels)), ("taints", len(pool.taints))):
        if count > LABELS_MAX:
            raise InvalidError(field, f"{count} {field}: expected at most {LABELS_MAX}")
    for key in pool.labels:
        if not key or key.startswith("node."):
            raise InvalidError(
                "labels", f"invalid label {key!r}: expected a name without the prefix node."
            )
    if "" in pool.taints:
        raise InvalidError("taints", "invalid taint '': expected key or key=value")


def _check_software(pool: NodePool) -> None:
    software = pool.software
    if not software.url and not software.sha256:
        return
    if not software.url.startswith(("https://", "http://")):
        raise InvalidError(
            "software.url",
            f"invalid URL {software.url[:80]!r}: expected http or https,"
            " for example https://example.com/persys.deb",
        )
    if not _SHA256.fullmatch(software.sha256):
        raise InvalidError(
            "software.sha256",
            f"invalid checksum {software.sha256[:80]!r}: expected 64 hexadecimal digits",
        )


def _check_price(field: str, price: float) -> None:
    if not math.isfinite(price) or not 0 <= price <= _PRICE_MAX:
        raise InvalidError(field, f"invalid price {price:g}: expected 0 or more per hour")
