"""The Compose command: v2 as a plugin of docker or by itself, or v1; whichever this machine has.

It is given no environment but its own: what a Compose file refers to comes from the spec alone.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from persys.agent.commands import Ran, run
from persys.errors import SettingsError

_DETECT_SECONDS = 20.0
_VERSION = re.compile(r"v?(\d+)\.\d+")
_PASSED = ("PATH", "HOME", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_PLUGIN = ("docker", "compose")
_ALONE = ("docker-compose",)
_NO_VARIABLES: Mapping[str, str] = {}


STDIN = Path("-")


class Project(NamedTuple):
    """What every call of Compose for one stack has in common. The file may be STDIN."""

    name: str
    directory: Path
    env_file: Path
    file: Path


class ComposeCli:
    def __init__(self, command: Sequence[str], version: str, docker_host: str) -> None:
        self.version = version
        self._command = tuple(command)
        self._docker_host = docker_host

    @property
    def is_old(self) -> bool:
        return self.version.startswith("1.")

    async def run(
        self,
        project: Project,
        *arguments: str,
        deadline: float,
        lock: Path | None = None,
        stdin: bytes = b"",
        variables: Mapping[str, str] = _NO_VARIABLES,
    ) -> Ran:
        """`variables` are for secrets that name one. Raises TimeoutError, OSError."""
        command = [*self._command, "--project-name", project.name]
        command += ["--project-directory", str(project.directory)]
        command += ["--env-file", str(project.env_file)]
        command += ["--file", str(project.file)]
        if self.is_old:
            command += ["--compatibility"]  # else it would ignore the limits under `deploy`
        return await run(
            [*command, *arguments],
            env={**variables, **self._env()},
            cwd=project.directory,
            deadline=deadline,
            lock=lock,
            stdin=stdin,
        )

    def _env(self) -> dict[str, str]:
        return _surroundings() | {
            "DOCKER_HOST": self._docker_host,
            "COMPOSE_ANSI": "never",
            "COMPOSE_INTERACTIVE_NO_CLI": "1",
            "COMPOSE_HTTP_TIMEOUT": "120",
        }


async def detect(binary: str, docker_host: str) -> ComposeCli | None:
    """`binary` is what an operator has set: a path, a name, or "docker compose"; "": look what is there."""
    candidates = [tuple(binary.split())] if binary else [_PLUGIN, _ALONE]
    for command in candidates:
        version = await _version(command)
        if version:
            return ComposeCli(command, version, docker_host)
    if binary:
        raise SettingsError(f"PERSYS_COMPOSE_BINARY={binary!r}: does not answer as Compose does")
    return None


async def _version(command: tuple[str, ...]) -> str:
    if not command or shutil.which(command[0]) is None:
        return ""
    try:
        ran = await run(
            [*command, "version", "--short"], env=_surroundings(), deadline=_DETECT_SECONDS
        )
    except (TimeoutError, OSError):
        return ""
    found = ran.out.strip()
    return found.removeprefix("v") if ran.ok and _VERSION.match(found) else ""


def _surroundings() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


def env_text(values: Mapping[str, str], *, is_old: bool) -> str:
    """Lines for an env file that the given Compose reads back as the same values."""
    return "".join(f"{name}={_quoted(value, is_old)}\n" for name, value in values.items())


def _quoted(value: str, is_old: bool) -> str:
    if is_old:
        # v1 puts ${…} in after it has taken quotes and escapes away, and knows no escape for it. An
        # unnamed variable with a default stands for what it would otherwise take for something else.
        plain = value.replace("${", "\0{").replace("\\", "${:-\\}").replace("\0{", "${:-$}{")
    else:
        plain = value.replace("\\", "\\\\").replace("$", "\\$")
    escaped = plain.replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
