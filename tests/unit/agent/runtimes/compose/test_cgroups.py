"""The cgroup of a stack, in cgroup v1 and v2 and with both drivers of Docker."""

from pathlib import Path

import pytest

from persys.agent.runtimes.compose.cgroups import (
    FileCgroups,
    StackLimits,
    SystemdCgroups,
    driver_of,
    limits_of,
)
from persys.model.placement import Resources
from persys.model.spec import ComposeSpec, StackNeeds

LIMITS = StackLimits(cpu_millicores=1500, memory_mb=64, pids=100)
UNLIMITED = str((1 << 63) - 4096)


def separate(root: Path) -> dict[str, Path]:
    """A cgroup v1 tree with the files that the kernel creates."""
    files = {
        "cpu": {"cpu.cfs_period_us": "100000\n", "cpu.cfs_quota_us": "-1\n"},
        "memory": {
            "memory.limit_in_bytes": UNLIMITED,
            "memory.memsw.limit_in_bytes": UNLIMITED,
        },
        "pids": {"pids.max": "max\n"},
    }
    return _written({root / name / "persys" / "web": each for name, each in files.items()})


def _written(groups: dict[Path, dict[str, str]]) -> dict[str, Path]:
    found = {}
    for group, files in groups.items():
        group.mkdir(parents=True)
        for name, text in files.items():
            (group / name).write_text(text)
            found[name] = group / name
    return found


def unified(root: Path) -> dict[str, Path]:
    for group in (root, root / "persys"):
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.subtree_control").write_text("cpu\n")
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    files = {
        "cpu.max": "max 100000\n",
        "memory.max": "max\n",
        "memory.swap.max": "max\n",
        "pids.max": "max\n",
    }
    return _written({root / "persys" / "web": files})


def test_limits_are_set_and_removed_in_cgroup_v1(tmp_path: Path) -> None:
    files, groups = separate(tmp_path), FileCgroups(tmp_path)

    groups.limit("web", LIMITS)

    assert files["cpu.cfs_quota_us"].read_text() == "150000"
    assert files["memory.limit_in_bytes"].read_text() == str(64 << 20)
    assert files["memory.memsw.limit_in_bytes"].read_text() == str(64 << 20)
    assert files["pids.max"].read_text() == "100"
    groups.limit("web", StackLimits())
    assert files["cpu.cfs_quota_us"].read_text() == "-1"
    assert files["memory.limit_in_bytes"].read_text() == "-1"
    assert files["pids.max"].read_text() == "max"


def test_limits_are_set_in_cgroup_v2_with_parent_controllers(tmp_path: Path) -> None:
    files = unified(tmp_path)

    FileCgroups(tmp_path).limit("web", LIMITS)

    assert files["cpu.max"].read_text() == "150000 100000"
    assert files["memory.max"].read_text() == str(64 << 20)
    assert files["memory.swap.max"].read_text() == "0"
    assert files["pids.max"].read_text() == "100"
    assert (tmp_path / "persys" / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_unchanged_limits_are_not_written(tmp_path: Path) -> None:
    files = unified(tmp_path)
    FileCgroups(tmp_path).limit("web", LIMITS)
    for file in files.values():
        file.chmod(0o400)
    before = {name: file.stat().st_mtime_ns for name, file in files.items()}
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids")
    (tmp_path / "persys" / "cgroup.subtree_control").write_text("cpu memory pids")

    FileCgroups(tmp_path).limit("web", LIMITS)

    assert {name: file.stat().st_mtime_ns for name, file in files.items()} == before


def test_systemd_limits_are_set_on_the_slice() -> None:
    words = SystemdCgroups().limit_command("persys-web-1", LIMITS)

    assert words[1:4] == ["set-property", "--runtime", "persys-persys_web_1.slice"]
    assert words[4:] == [
        "CPUQuota=150%",
        f"MemoryMax={64 << 20}",
        "MemorySwapMax=0",
        "TasksMax=100",
    ]
    assert SystemdCgroups().limit_command("a", StackLimits())[4:] == [
        "CPUQuota=",
        "MemoryMax=infinity",
        "MemorySwapMax=infinity",
        "TasksMax=infinity",
    ]


@pytest.mark.parametrize(
    ("info", "contained", "has_systemd", "kind"),
    [
        ({"CgroupDriver": "cgroupfs"}, False, False, FileCgroups),
        ({"CgroupDriver": "systemd"}, False, True, SystemdCgroups),
        ({"CgroupDriver": "systemd"}, False, False, str),
        ({"CgroupDriver": "none"}, False, True, str),
        ({"CgroupDriver": "cgroupfs"}, True, True, str),
    ],
)
def test_the_cgroup_driver_of_docker_is_used(
    info: dict[str, object], contained: bool, has_systemd: bool, kind: type
) -> None:
    assert isinstance(driver_of(info, contained=contained, has_systemd=has_systemd), kind)


def test_limits_derived_from_the_file_do_not_limit_the_stack() -> None:
    needs = StackNeeds(cpu_millicores=500, memory_mb=64)
    spec = ComposeSpec(needs=needs, reserved=Resources(500, 128, 0))

    assert limits_of(spec, 10) == StackLimits(0, 128, 10)
