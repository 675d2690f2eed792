"""A machine that boots from its user data, as a mount namespace of this host.

The files of the user data are written over the directories of this host, which does not see them. `systemctl`
is replaced: it starts and stops the agent and records everything else.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import yaml

from e2e import containers

BIN = Path(sys.executable).parent
_COVERED = ("/etc", "/usr/local")
_SYSTEMCTL = """#!/bin/sh
echo "$@" >>{folder}/systemctl.log
case "$*" in
  "cat persys-agent.service") [ -e /etc/systemd/system/persys-agent.service ] ;;
  "restart persys-agent.service")
    setsid persys-agent >>{folder}/agent.log 2>&1 &
    echo $! >{folder}/agent.pid
    ;;
esac
"""
_WRITE = """
import sys, yaml
from pathlib import Path
for file in yaml.safe_load(Path(sys.argv[1]).read_text())["write_files"]:
    path = Path(file["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file["content"])
    path.chmod(int(file["permissions"], 8))
"""


class BootedMachine:
    def __init__(self, folder: Path, user_data: str, variables: Mapping[str, str]) -> None:
        """`variables` are further settings of its agent."""
        self.folder = folder
        self.node_id = yaml.safe_load(user_data)["hostname"]
        self._runcmd = yaml.safe_load(user_data)["runcmd"]
        self._variables = variables
        (folder / "user-data").write_text(user_data)
        (folder / "write.py").write_text(_WRITE)
        (folder / "systemctl").write_text(_SYSTEMCTL.format(folder=folder))
        (folder / "systemctl").chmod(0o755)

    def boot(self) -> subprocess.CompletedProcess[str]:
        """What cloud-init does. The agent runs when it returns."""
        covers = "\n".join(
            f"mkdir -p {self.folder}{path}/upper {self.folder}{path}/scratch\n"
            f"mount -t overlay overlay -o lowerdir={path},upperdir={self.folder}{path}/upper,"
            f"workdir={self.folder}{path}/scratch {path}"
            for path in _COVERED
        )
        script = f"""set -e
{covers}
mkdir -p /usr/local/sbin
cp {self.folder}/systemctl /usr/local/sbin/systemctl
ln -sf {BIN}/persys-agent /usr/local/sbin/persys-agent
{sys.executable} {self.folder}/write.py {self.folder}/user-data
{chr(10).join(shlex.join(command) for command in self._runcmd)}
"""
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            env={
                "PATH": os.environ["PATH"],
                "PERSYS_STATE_PATH": str(self.folder / "state.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(self.folder / "volumes"),
                "PERSYS_COMPOSE_ENABLED": "false",
                "PERSYS_VM_ENABLED": "false",
                **self._variables,
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def systemctl_calls(self) -> list[str]:
        return (self.folder / "systemctl.log").read_text().splitlines()

    def file(self, path: str) -> Path:
        """A file as the machine has it."""
        covered = next(one for one in _COVERED if path.startswith(f"{one}/"))
        return Path(f"{self.folder}{covered}/upper{path.removeprefix(covered)}")

    def log(self) -> str:
        path = self.folder / "agent.log"
        return path.read_text() if path.exists() else ""

    def terminate(self) -> None:
        """The provider removes the machine, with everything that runs on it."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.killpg(int((self.folder / "agent.pid").read_text()), signal.SIGKILL)
        containers.remove(containers.container_ids(self.node_id))
