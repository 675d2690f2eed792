"""Installs Debian packages for missing commands.

A command that was installed in another way is used as it is.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from persys.cli.framework.exit_codes import SetupError
from persys.cli.framework.live import Progress

_DEADLINE_SECONDS = 900
# Daemons are in sbin, which is not in the PATH of ordinary users.
_SBIN = ("/usr/sbin", "/sbin")


def find_command(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_SBIN)))


def ensure_commands(packages: Mapping[str, str], progress: Progress) -> None:
    """`packages` maps each command to the package that contains it."""
    missing = {package for name, package in packages.items() if find_command(name) is None}
    if missing:
        install_packages(sorted(missing), progress)


def install_packages(missing: Sequence[str], progress: Progress) -> None:
    wanted = " ".join(missing)
    if find_command("apt-get") is None:
        raise SetupError(
            f"cannot install {wanted}: apt-get not found; install the packages manually"
        )
    if os.geteuid() != 0:
        raise SetupError(f"cannot install {wanted}: run as root")
    progress.step(f"installing {wanted}")
    code, output = _apt_get("install", *missing)
    if code != 0:
        # The common cause is missing or outdated package lists.
        _apt_get("update")
        code, output = _apt_get("install", *missing)
    if code != 0:
        raise SetupError(f"apt-get install {wanted} failed:\n{output}")
    progress.done(f"installed {wanted}")


def _apt_get(verb: str, *packages: str) -> tuple[int, str]:
    options = ("--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120")
    # A file and not a pipe: a daemon started by the package would keep the pipe open forever.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            ended = subprocess.run(
                ["apt-get", verb, *options, *packages],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_DEADLINE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise SetupError(f"apt-get {verb} timed out after {_DEADLINE_SECONDS} s") from err
        output.seek(0)
        return ended.returncode, "".join(output.readlines()[-15:])
