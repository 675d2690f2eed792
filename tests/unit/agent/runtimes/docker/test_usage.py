"""Counters of containers in cgroup v1 and v2."""

from pathlib import Path

import pytest

from persys.agent.runtimes.docker.usage import Cgroups, Counters

EXPECTED = Counters(
    cpu_nanos=7_000,
    memory_bytes=900,
    disk_read_bytes=30,
    disk_write_bytes=4,
    net_rx_bytes=11,
    net_tx_bytes=22,
)
SEPARATE = {
    "cpuacct/docker/c1/cpuacct.usage": "7000\n",
    "cpuacct/docker/c1/cgroup.procs": "17\n18\n",
    "memory/docker/c1/memory.usage_in_bytes": "1000\n",
    "memory/docker/c1/memory.stat": "cache 5\ntotal_inactive_file 100\n",
    "blkio/docker/c1/blkio.throttle.io_service_bytes": "8:0 Read 10\n8:0 Write 4\n8:16 Read 20\n"
    "8:0 Total 14\nTotal 34\n",
}
UNIFIED = {
    "cgroup.controllers": "cpu io memory\n",
    "system.slice/docker-c1.scope/cpu.stat": "usage_usec 7\nuser_usec 3\n",
    "system.slice/docker-c1.scope/cgroup.procs": "17\n",
    "system.slice/docker-c1.scope/memory.current": "1000\n",
    "system.slice/docker-c1.scope/memory.stat": "anon 5\ninactive_file 100\n",
    "system.slice/docker-c1.scope/io.stat": "8:0 rbytes=10 wbytes=4 rios=1\n8:16 rbytes=20\n",
}
OF_STACKS = [
    {name.replace("docker/c1", "persys/persys-a-1/c1"): text for name, text in SEPARATE.items()},
    {
        name.replace("system.slice/", "persys.slice/persys-persys_a_1.slice/"): text
        for name, text in UNIFIED.items()
    },
]
DEVICES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets
    lo:     999       1    0    0    0     0          0         0      999       1
  eth0:      11       1    0    0    0     0          0         0       22       1
"""


def tree(root: Path, files: dict[str, str], *, network: str = "net:[2]") -> Cgroups:
    processes = {"proc/17/net/dev": DEVICES}
    for name, content in {
        **{f"cgroup/{name}": text for name, text in files.items()},
        **processes,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for pid, namespace in (("self", "net:[1]"), ("17", network)):
        (root / "proc" / pid / "ns").mkdir(parents=True)
        (root / "proc" / pid / "ns/net").symlink_to(namespace)
    return Cgroups(f"{root}/cgroup", f"{root}/proc")


@pytest.mark.parametrize(
    "files",
    [SEPARATE, UNIFIED, *OF_STACKS],
    ids=["version 1", "version 2", "stack, version 1", "stack, version 2"],
)
def test_counters_match_docker_stats(tmp_path: Path, files: dict[str, str]) -> None:
    assert tree(tmp_path, files).read_all({"c1": "persys-a-1", "c2": "persys-b-1"}) == {
        "c1": EXPECTED
    }


def test_host_network_traffic_is_not_counted_for_a_container(tmp_path: Path) -> None:
    counters = tree(tmp_path, SEPARATE, network="net:[1]").read("c1")

    assert counters is not None
    assert (counters.net_rx_bytes, counters.net_tx_bytes) == (0, 0)


def test_an_unreadable_cgroup_is_skipped(tmp_path: Path) -> None:
    broken = SEPARATE | {"cpuacct/docker/c1/cpuacct.usage": "much\n"}

    assert tree(tmp_path, broken).read("c1") is None
