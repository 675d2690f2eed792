"""Usage samples from libvirt statistics."""

from persys.agent.runtimes.vm.usage import sample_of
from persys.core.agent.report import UsageSample
from persys.model.ids import WorkloadId

VM = WorkloadId("vm")
STATS = {
    "cpu.time": 5_000,
    "balloon.current": 2048,
    "balloon.rss": 1024,
    "block.count": 2,
    "block.0.rd.bytes": 10,
    "block.0.wr.bytes": 1,
    "block.1.rd.bytes": 20,
    "net.count": 1,
    "net.0.rx.bytes": 7,
    "net.0.tx.bytes": 8,
}


def test_disks_and_interfaces_of_a_vm_are_summed() -> None:
    sample = sample_of(VM, "u", STATS, 1.0, None)

    assert sample == UsageSample(VM, "u", 1.0, 5_000, 1024 * 1024, 30, 1, 7, 8)


def test_missing_values_of_a_busy_vm_keep_the_last_value() -> None:
    before = sample_of(VM, "u", STATS, 1.0, None)

    sample = sample_of(VM, "u", {"cpu.time": 6_000, "balloon.current": 2048}, 2.0, before)

    assert (sample.disk_read_bytes, sample.net_tx_bytes) == (30, 8)
    assert (sample.cpu_nanos, sample.memory_bytes) == (6_000, 2048 * 1024)


def test_counters_restart_with_the_vm() -> None:
    before = sample_of(VM, "u", STATS, 1.0, None)

    assert sample_of(VM, "u", {"cpu.time": 10}, 2.0, before) == UsageSample(VM, "u", 2.0, 10)
