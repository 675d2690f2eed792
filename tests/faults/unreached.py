"""Call sites that no lifecycle without faults reaches.

`TRIGGERS`: reached only when another call fails. That fault is injected too.
`ELSEWHERE`: need a real runtime; with the test that makes the call.
"""

from typing import NamedTuple

from faults.injection import OVERSIZED, REFUSED


class Trigger(NamedTuple):
    """The fault that leads to a call."""

    site: str
    kind: str


_LOCAL, _IMAGES = "paths:volumes/local:LocalDriver", "paths:images/store:ImageStore"
_COMMANDS = "runtimes/compose/cli:ComposeCommands"
_VM = "libvirt:runtimes/vm/runtime:VmRuntime"
TRIGGERS = {
    "docker:runtimes/bind_guard:BindGuard._replaced#2": Trigger(
        "paths:runtimes/bind_guard:BindGuard._replaced#1", OVERSIZED
    ),
    "paths:runtimes/compose/git:Git._discarded#1": Trigger(
        "paths:runtimes/compose/git:Git._is_large#1", OVERSIZED
    ),
    f"docker:{_COMMANDS}._run#1": Trigger(f"programs:{_COMMANDS}.create#1", REFUSED),
    "docker:runtimes/docker/start:port_conflict#1": Trigger(
        "docker:runtimes/docker/start:start_container#1", REFUSED
    ),
    f"{_LOCAL}._make_file#3": Trigger("programs:volumes/filesystems:create#1", REFUSED),
    "libvirt:runtimes/detect:Detector._detect_libvirt#1": Trigger(f"{_IMAGES}.open#1", REFUSED),
    f"{_VM}._name_conflict#1": Trigger(f"{_VM}.create#1", REFUSED),
    f"{_VM}._power_on#2": Trigger(
        "paths:runtimes/vm/storage/disk_guard:DiskGuard.check_started#1", OVERSIZED
    ),
}

_ACCESS = "tests/shells/agent/access/test_sessions.py::"
_CONSOLES = "tests/shells/agent/runtimes/vm/test_console.py::"
_VMS = "tests/shells/agent/runtimes/vm/test_runtime.py::"
_CONSOLE = f"{_CONSOLES}test_a_console_ends_with_libvirt_and_can_be_opened_again"
_COMMAND = f"{_ACCESS}test_exec_returns_output_and_exit_code"
_LEFT_BEHIND = f"{_ACCESS}test_the_command_is_killed_when_the_caller_disconnects"
_OUTAGE = "tests/shells/agent/runtimes/vm/test_libvirt.py::test_a_missing_libvirtd_is_unavailable"
ELSEWHERE = {
    "docker:runtimes/docker/exec_logs:DockerAccess.exec#1": _COMMAND,
    "docker:runtimes/docker/exec_logs:DockerAccess.exec#2": _COMMAND,
    "docker:runtimes/docker/exec_logs:Session.exit_code#1": _COMMAND,
    "docker:runtimes/docker/exec_logs:Session.resize#1": (
        f"{_ACCESS}test_exec_sets_the_terminal_size"
    ),
    "docker:runtimes/docker/exec_logs:send_hangup#1": _LEFT_BEHIND,
    "paths:runtimes/docker/start:kill_lost_shim#1": (
        "tests/unit/agent/runtimes/docker/test_start.py::test_a_stale_shim_is_killed_and_the_container_starts"
    ),
    "docker:runtimes/detect:Detector.close#1": _COMMAND,
    "libvirt:runtimes/detect:Detector.close#1": _CONSOLE,
    "libvirt:runtimes/vm/detect:detect_hypervisor#2": _OUTAGE,
    "libvirt:runtimes/vm/storage/disks:VmDisks.check#1": (
        f"{_VMS}test_an_unsupported_vm_spec_is_rejected_by_field"
    ),
    "paths:runtimes/vm/storage/disks:DiskInventory.delete#1": (
        f"{_VMS}test_a_vm_that_moves_to_another_node_leaves_its_disks"
    ),
    "paths:runtimes/vm/console:lines#1": (
        "tests/shells/agent/runtimes/vm/test_console_log.py::test_a_follower_continues_in_the_next_file"
    ),
    "libvirt:runtimes/vm/console:Console.open#1": _CONSOLE,
    "libvirt:runtimes/vm/console:Console.end#1": _CONSOLE,
    "libvirt:runtimes/vm/console:Console.watch#1": _CONSOLE,
    "libvirt:runtimes/vm/console:Console._with_stream#1": _CONSOLE,
    "paths:runtimes/compose/cgroups:StackCgroups._call#1": (
        "tests/shells/agent/runtimes/compose/test_cgroups.py::test_a_stack_is_limited_as_a_whole_and_its_cgroup_is_removed_with_it"
    ),
}
