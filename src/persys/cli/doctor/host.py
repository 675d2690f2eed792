"""Checks this host, if it is a node: the agent's port, its runtimes and free disk space."""

import os
import shutil
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.connect.diagnose import explain_tls_failure
from persys.cli.connect.settings import Settings
from persys.cli.connect.tls import client_tls
from persys.cli.doctor.finding import Finding, fail, ok, warn
from persys.cli.local.docker import compose_command
from persys.cli.local.packages import find_command
from persys.errors import PersysError, SettingsError
from persys.model.role import Role

if TYPE_CHECKING:
    from persys.client.grpc.channel import Trust

SECONDS = 3.0
COMMAND_SECONDS = 10
DISK_WARN = 0.10
DISK_FAIL = 0.03
_STATE = (Path("/var/lib/persys"), Path("/var/lib/docker"))
_AGENT_CERTIFICATES = Path("/etc/persys/certs/persys-agent")
_AGENT_PYTHON = Path("/opt/persys/bin/python")
_PRINT_BINDING = """\
import sys
from persys.errors import RuntimeUnavailableError
from persys.infra.libvirt_binding import find_binding
try:
    print(find_binding())
except RuntimeUnavailableError as err:
    sys.exit(str(err))
"""


def check_host(options: Namespace, settings: Settings) -> Iterator[Finding]:
    for place in [Path(options.state_dir)] if options.state_dir else _STATE:
        if place.exists():
            usage = shutil.disk_usage(place)
            yield check_disk(str(place), usage.free, usage.total)
    listens = _is_listening(settings.agent)
    if not (options.agent or listens or _AGENT_CERTIFICATES.exists()):
        return
    yield _check_agent(options, settings, listens=listens)
    yield from _check_docker()
    yield from _check_libvirt()


def check_disk(place: str, free: int, total: int) -> Finding:
    share = free / total if total else 0.0
    text = f"{place} has {free / 1024**3:.1f} GB free, {share:.0%}"
    fix = (
        "free disk space with `persysctl agent gc` and `docker system prune`, or use a larger disk"
    )
    if share < DISK_FAIL:
        return fail("disk", text, fix)
    return warn("disk", text, fix) if share < DISK_WARN else ok("disk", text)


def _is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS):
            return True
    except OSError:
        return False


def _check_agent(options: Namespace, settings: Settings, *, listens: bool) -> Finding:
    where = settings.agent
    if not listens:
        fix = (
            "`systemctl start persys-agent`, or `persys up` on a machine that it set up; "
            "`journalctl -u persys-agent` has the cause"
        )
        return fail("agent", f"connection refused: {where}", fix)
    from persys.client import AgentClient

    try:
        trust = client_tls(options, os.environ, settings.file)
    except SettingsError:  # for example with a token, which only schedulers and gateways accept
        return ok("agent", f"{where} accepts connections; a client certificate is needed for more")
    try:
        with closing(AgentClient(where, timeout=settings.request_timeout, trust=trust)) as client:
            health = client.check_health()
    except PersysError as err:
        return _agent_error(where, trust, err)
    runtimes = ", ".join(f"{name} {text}" for name, text in sorted(health.runtime_status.items()))
    if not health.healthy:
        fix = "correct the runtimes below; `journalctl -u persys-agent` has the cause"
        return fail("agent", f"{where} is not healthy: {runtimes}", fix)
    return ok("agent", f"{where} {health.version} is healthy: {runtimes}")


def _agent_error(where: str, trust: "Trust | None", err: PersysError) -> Finding:
    try:
        why = explain_tls_failure(where, Role.AGENT, trust)
    except PersysError as own:
        why = str(own)
    text = f"the process at {where} does not respond as an agent: {why or err}"
    port = where.rpartition(":")[2]
    fix = (
        f"`ss -ltnp sport = :{port}` shows the process on this port; if it is the agent, "
        "`systemctl restart persys-agent`; otherwise set the address of the agent with "
        "PERSYS_AGENT_ADDR or agent_endpoint of the context"
    )
    return fail("agent", text, fix)


def _check_docker() -> Iterator[Finding]:
    if find_command("docker") is None:
        fix = "install Docker, for example with `apt-get install docker.io docker-compose`"
        yield fail("docker", "docker command not found", fix)
        return
    if (why := _command_error("docker", "version", "--format", "{{.Server.Version}}")) is not None:
        fix = "`systemctl start docker`; this user must be root or in the group docker"
        yield fail("docker", f"Docker does not respond: {why}", fix)
        return
    yield ok("docker", "Docker is running")
    if (command := compose_command()) is not None:
        yield ok("compose", f"`{' '.join(command)}` works")
    else:
        fix = "for Compose stacks: `apt-get install docker-compose`, or docker-compose-plugin"
        yield warn("compose", "neither `docker compose` nor `docker-compose` works", fix)


def _check_libvirt() -> Iterator[Finding]:
    fix = "for VMs: `apt-get install libvirt-daemon-system qemu-system-x86`, `systemctl start libvirtd`"
    if find_command("virsh") is None:
        yield warn("libvirt", "virsh command not found, so libvirt is probably missing", fix)
        return
    if (why := _command_error("virsh", "--readonly", "version")) is not None:
        yield warn("libvirt", f"libvirt does not respond: {why}", fix)
        return
    yield ok("libvirt", "libvirt answers")
    # The agent may run with another Python than this program.
    yield check_binding(str(_AGENT_PYTHON) if _AGENT_PYTHON.exists() else sys.executable)


def check_binding(python: str) -> Finding:
    """The binding of libvirt that a program with this Python uses."""
    found = _run(python, "-c", _PRINT_BINDING)
    if found.returncode == 0:
        return ok("libvirt", f"the agent uses {found.stdout.strip()}")
    fix = "for VMs: install the Python binding as described, and restart the agent"
    return warn("libvirt", _last_line(found), fix)


def _command_error(*command: str) -> str | None:
    """None if the command succeeds, else the last line of its output."""
    ended = _run(*command)
    return None if ended.returncode == 0 else _last_line(ended)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """A command that cannot be run, or does not end, has an exit code too."""
    try:
        return subprocess.run(
            command, capture_output=True, timeout=COMMAND_SECONDS, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return subprocess.CompletedProcess(command, 127, "", str(err))


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    lines = (ended.stderr or ended.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit code {ended.returncode}"
