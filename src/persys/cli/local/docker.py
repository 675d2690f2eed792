"""Finds or starts Docker for `persys up`.

With systemd the daemon is started as a service; without it, dockerd runs in the background with its log and
pid file in the state directory. Docker is never stopped here.
"""

import os
import subprocess
from datetime import timedelta
from pathlib import Path

from persys.cli.framework.exit_codes import SetupError
from persys.cli.framework.live import Progress
from persys.cli.local.daemon import BackgroundProcess, command_line
from persys.cli.local.packages import ensure_commands, find_command, install_packages
from persys.cli.local.poll import poll

_RESPONSE_DEADLINE = timedelta(seconds=60)
_CALL_SECONDS = 120
# From Docker's own repository, Ubuntu and Debian.
_COMPOSE_PACKAGES = ("docker-compose-plugin", "docker-compose-v2", "docker-compose")
_PID_FILES = (Path("/var/run/docker.pid"), Path("/var/run/docker/containerd/containerd.pid"))


def ensure_docker(state_dir: Path, progress: Progress) -> None:
    version = docker_version()
    if version is None:
        version = _start(state_dir, progress)
    progress.done(f"Docker {version} is running")


def docker_version() -> str | None:
    """The version of the daemon that responds, or None."""
    if find_command("docker") is None:
        return None
    ended = run_docker("version", "--format", "{{.Server.Version}}")
    return ended.stdout.decode().strip() if ended.returncode == 0 else None


def compose_command() -> list[str] | None:
    """The Compose command that works: the docker plugin or the standalone program. None: neither."""
    for command in (["docker", "compose"], ["docker-compose"]):
        program = find_command(command[0])
        if program is not None and _succeeds([program, *command[1:], "version"]):
            return command
    return None


def ensure_compose(progress: Progress) -> None:
    """Install Compose, which stacks need. Everything else works without it."""
    command = compose_command()
    if command is None:
        package = next(
            (name for name in _COMPOSE_PACKAGES if _succeeds(["apt-cache", "show", name])), None
        )
        if package is None or os.geteuid() != 0:
            progress.done("Compose not found: install docker-compose to run Compose stacks")
            return
        install_packages([package], progress)
        command = compose_command()
        if command is None:
            raise SetupError(f"{package} is installed, but Compose does not respond")
    progress.done(f"Compose is installed (`{' '.join(command)}`)")


def _succeeds(command: list[str]) -> bool:
    try:
        ended = subprocess.run(command, capture_output=True, timeout=_CALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def run_docker(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = find_command("docker")
    if command is None:
        raise SetupError("docker command not found: install Docker Engine")
    try:
        return subprocess.run(
            [command, *arguments],
            input=stdin,
            capture_output=True,
            timeout=_CALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        raise SetupError(f"docker {arguments[0]} timed out after {_CALL_SECONDS} s") from err


def _start(state_dir: Path, progress: Progress) -> str:
    if os.environ.get("DOCKER_HOST"):
        raise SetupError(f"no response from Docker at DOCKER_HOST={os.environ['DOCKER_HOST']}")
    ensure_commands(
        {"docker": "docker.io", "dockerd": "docker.io", "iptables": "iptables"}, progress
    )
    # The installation of the package may have started it.
    version = docker_version()
    if version is not None:
        return version
    if os.geteuid() != 0:
        raise SetupError("Docker is not running; run as root to start it")
    progress.step("starting Docker")
    if Path("/run/systemd/system").is_dir():
        return _start_with_systemd()
    return _start_in_background(state_dir)


def _start_with_systemd() -> str:
    ended = subprocess.run(
        ["systemctl", "start", "docker"],
        capture_output=True,
        text=True,
        timeout=_CALL_SECONDS,
        check=False,
    )
    version = poll(docker_version, within=_RESPONSE_DEADLINE) if ended.returncode == 0 else None
    if version is None:
        raise SetupError(f"systemctl start docker: {ended.stderr}see `journalctl -u docker`")
    return version


def _start_in_background(state_dir: Path) -> str:
    _remove_stale_pid_files()
    dockerd = find_command("dockerd")
    assert dockerd is not None
    daemon = BackgroundProcess("dockerd", (dockerd,), {}, state_dir)
    if daemon.running() is None:
        daemon.start()

    def version_while_running() -> str | None:
        daemon.check_runs()
        return docker_version()

    version = poll(version_while_running, within=_RESPONSE_DEADLINE)
    if version is None:
        raise daemon.failure(f"did not respond within {_RESPONSE_DEADLINE.seconds} s")
    return version


def _remove_stale_pid_files() -> None:
    """Remove pid files that name another process after a crash and a reboot: dockerd would not start."""
    for path in _PID_FILES:
        try:
            pid = int(path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            continue
        line = command_line(pid)
        if not line or Path(line[0]).name != path.stem.replace("docker", "dockerd"):
            path.unlink(missing_ok=True)
