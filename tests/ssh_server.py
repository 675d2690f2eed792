"""A real sshd on this machine, with a key of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from persys.cli.local.packages import find_command


@contextmanager
def ssh_server(directory: Path, port: int) -> Iterator[tuple[Path, str]]:
    """The private key of a user with access, and the known_hosts line of the server."""
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(command, capture_output=True, timeout=60, check=True)
    (directory / "authorized").write_text((directory / "user.pub").read_text())
    config = directory / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory / 'host'}\n"
        f"AuthorizedKeysFile {directory / 'authorized'}\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nPermitRootLogin yes\nPidFile none\n"
    )
    sshd = find_command("sshd")
    assert sshd is not None, "the tests need openssh-server"
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE)
    try:
        assert server.stderr is not None
        while b"listening on" not in (line := server.stderr.readline()):
            assert line, "sshd ended"
        host_key = " ".join((directory / "host.pub").read_text().split()[:2])
        yield directory / "user", f"[127.0.0.1]:{port} {host_key}"
    finally:
        server.kill()
        server.communicate()
