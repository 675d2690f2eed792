"""persysctl top and stats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from persys.wire.gen.control.v1 import control_pb2

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


def use(view: control_pb2.WorkloadView, **figures: float) -> None:
    usage = control_pb2.WorkloadUsageSnapshot(
        workload_id=view.workload_id,
        source="docker",
        **figures,  # type: ignore[arg-type]  # the stubs want each by name
    )
    usage.collected_at.GetCurrentTime()
    view.usage.CopyFrom(usage)


def test_top_sorts_by_the_given_key(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node(
        "n1",
        total_cpu_cores=4,
        total_memory_mb=8000,
        usage=control_pb2.NodeUsage(cpu_used_millicores=1500, memory_used_mb=2000),
    )
    use(cluster.add_workload("busy"), cpu_percent=90, memory_bytes=1 << 20)
    use(cluster.add_workload("fat"), cpu_percent=1, memory_bytes=3 << 30)
    cluster.add_workload("unknown")

    by_cpu = ctl("top")
    by_memory = ctl("top", "--sort", "memory", "-o", "name")

    assert "1.5/4" in by_cpu.out
    assert by_cpu.out.index("busy") < by_cpu.out.index("fat")
    assert "3.0GiB" in by_cpu.out
    assert "unknown" not in by_cpu.out
    assert by_memory.out.split() == ["fat", "busy"]


def test_stats_of_one_workload_are_available_as_json(cluster: Cluster, ctl: Run) -> None:
    use(cluster.add_workload("web"), cpu_percent=12.5, memory_bytes=2048, net_rx_bytes=7)
    cluster.add_workload("new", status="Pending")

    shown = ctl("stats", "web")
    figures = json.loads(ctl("stats", "web", "-o", "json").out)
    empty = ctl("stats", "new")

    assert "12.5" in shown.out
    assert "2.0KiB" in shown.out
    assert (figures["cpu_percent"], figures["net_rx_bytes"]) == (12.5, "7")
    assert empty.code == 1
    assert "no measurement of new" in empty.err
