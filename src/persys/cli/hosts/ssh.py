"""Runs one script on one host with the ssh client of the system.

BatchMode: ssh never prompts. One connection per host is shared by all scripts (ControlMaster). The script is
an argument of the remote shell and visible in its process list; secrets are sent on standard input only.
"""

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from persys.cli.framework.exit_codes import SetupError
from persys.cli.hosts.inventory import Host

CONNECT_SECONDS = 15
STEP_SECONDS = 1200  # installs packages, possibly on a slow network
_SSH_FAILED = 255  # the exit code of ssh itself
_LINES_SHOWN = 6


class Result(NamedTuple):
    code: int
    output: bytes
    errors: str  # the last lines of standard error


class HostError(SetupError):
    """A host cannot be reached, or a script failed there. The text does not name the host."""


class Shell(Protocol):
    def run(self, host: Host, script: str, *, root: bool, data: bytes | Path = b"") -> Result:
        """Run a script. `data` is its standard input: bytes, or the content of a file.

        Raises HostError if the host cannot be reached or the script does not end in time.
        """


class Ssh:
    """Implements `Shell`."""

    def __init__(self, directory: Path, *, identity: str = "", options: Sequence[str] = ()) -> None:
        words = [
            "BatchMode=yes",
            f"ConnectTimeout={CONNECT_SECONDS}",
            "ServerAliveInterval=15",
            "ControlMaster=auto",
            f"ControlPath={directory}/%C",
            "ControlPersist=60",
            *options,
        ]
        self._command = ["ssh", *(part for word in words for part in ("-o", word))]
        if identity:
            self._command += ["-i", identity]
        self._hosts: set[Host] = set()

    def run(self, host: Host, script: str, *, root: bool, data: bytes | Path = b"") -> Result:
        self._hosts.add(host)
        command = [*self._to(host), remote_command(script, root=root)]
        try:
            if isinstance(data, Path):
                with data.open("rb") as file:
                    ended = subprocess.run(
                        command, stdin=file, capture_output=True, timeout=STEP_SECONDS, check=False
                    )
            else:
                ended = subprocess.run(
                    command, input=data, capture_output=True, timeout=STEP_SECONDS, check=False
                )
        except subprocess.TimeoutExpired as err:
            raise HostError(f"no answer within {STEP_SECONDS} s") from err
        errors = "\n".join(
            ended.stderr.decode(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
        )
        if ended.returncode == _SSH_FAILED:
            by_hand = shlex.join(["ssh", *self._address(host), "true"])
            raise HostError(f"ssh failed: {errors or 'no message'}; try `{by_hand}`")
        return Result(ended.returncode, ended.stdout, errors)

    def close(self) -> None:
        """Close the shared connections."""
        for host in self._hosts:
            subprocess.run(
                [*self._to(host, "-O", "exit")],
                capture_output=True,
                timeout=CONNECT_SECONDS,
                check=False,
            )

    def _to(self, host: Host, *options: str) -> list[str]:
        return [*self._command, *options, *self._address(host)]

    def _address(self, host: Host) -> list[str]:
        return [*(("-p", str(host.port)) if host.port else ()), "--", host.destination]


def remote_command(script: str, *, root: bool) -> str:
    """The command for the login shell of the user, which may be any shell with single quotes."""
    run = f"sh -c {shlex.quote(script)}"
    if not root:
        return run
    as_root = f'if [ "$(id -u)" = 0 ]; then exec {run}; else exec sudo -n {run}; fi'
    return f"sh -c {shlex.quote(as_root)}"


@contextmanager
def open_ssh(*, identity: str, options: Sequence[str]) -> Iterator[Ssh]:
    if shutil.which("ssh") is None:
        raise SetupError(
            "ssh is not installed: install it, for example with `apt-get install openssh-client`"
        )
    # A short path: the name of a socket has at most about 100 characters.
    with tempfile.TemporaryDirectory(prefix="persys-") as directory:
        ssh = Ssh(Path(directory), identity=identity, options=options)
        try:
            yield ssh
        finally:
            ssh.close()
