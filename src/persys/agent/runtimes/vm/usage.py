"""Samples the usage of this agent's VMs with one call to libvirt.

Memory is the resident memory of QEMU, not the usage inside the guest. libvirt omits values of a busy domain;
the last known value is used instead.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm.domain_xml import domain_uuid
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, load
from persys.core.agent.report import UsageSample
from persys.errors import RuntimeUnavailableError
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId

Stats = dict[str, Any]

_KIB = 1024


class VmUsage:
    def __init__(
        self,
        libvirt: Libvirt,
        owner: OwnerLabels,
        clock: Clock,
        vm_ids: Callable[[], Iterable[WorkloadId]],
    ) -> None:
        """`vm_ids` returns the workload ids of this agent's VMs."""
        self._libvirt = libvirt
        self._owner = owner
        self._clock = clock
        self._vm_ids = vm_ids
        self._last: dict[str, UsageSample] = {}

    async def sample(self) -> list[UsageSample]:
        """One sample per running VM. Raises RuntimeUnavailableError."""
        owners = {
            domain_uuid(self._owner, workload_id): workload_id for workload_id in self._vm_ids()
        }
        if not owners:
            return []
        try:
            found = await self._libvirt.call(_all_stats)
        except LibvirtError as err:
            raise RuntimeUnavailableError(
                f"cannot read the usage of VMs from libvirt: {err.message}"
            ) from err
        at = self._clock.monotonic()
        samples = [
            sample_of(owners[uuid], uuid, stats, at, self._last.get(uuid))
            for uuid, stats in found
            if uuid in owners and "cpu.time" in stats
        ]
        self._last = {sample.container_id: sample for sample in samples}
        return samples


def sample_of(
    workload_id: WorkloadId, uuid: str, stats: Stats, at: float, before: UsageSample | None
) -> UsageSample:
    sample = UsageSample(workload_id, uuid, at, cpu_nanos=stats["cpu.time"])
    found = {
        "memory_bytes": _KIB * int(stats.get("balloon.rss") or stats.get("balloon.current") or 0),
        "disk_read_bytes": _total(stats, "block", "rd.bytes"),
        "disk_write_bytes": _total(stats, "block", "wr.bytes"),
        "net_rx_bytes": _total(stats, "net", "rx.bytes"),
        "net_tx_bytes": _total(stats, "net", "tx.bytes"),
    }
    if before is not None and before.cpu_nanos <= sample.cpu_nanos:
        found = {name: amount or getattr(before, name) for name, amount in found.items()}
    return replace(sample, **found)


def _total(stats: Stats, kind: str, what: str) -> int:
    count = stats.get(f"{kind}.count", 0)
    return sum(stats.get(f"{kind}.{number}.{what}", 0) for number in range(count))


def _all_stats(connection: Any) -> list[tuple[str, Stats]]:
    libvirt = load()
    kinds = (
        libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_BLOCK
        | libvirt.VIR_DOMAIN_STATS_INTERFACE
    )
    which = (
        libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_RUNNING
        | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    )
    return [
        (domain.UUIDString(), stats) for domain, stats in connection.getAllDomainStats(kinds, which)
    ]
