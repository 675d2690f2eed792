"""The Compose command that this host has: v2 as a docker plugin, v2 standalone, or v1.

Compose runs with a fixed environment: variables in a Compose file are resolved from the spec alone.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from persys.agent.subprocesses import Ran, run
from persys.errors import SettingsError

_DETECT_SECONDS = 20.0
_MESSAGE_MAX = 1000
_VERSION = re.compile(r"v?(\d+)\.\d+")
_PASSED = ("PATH", "HOME", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_PLUGIN = ("docker", "compose")
_STANDALONE = ("docker-compose",)
_NO_VARIABLES: Mapping[str, str] = {}


STDIN = Path("-")


class Project(NamedTuple):
    """Arguments that all Compose calls of one stack share. `file` may be STDIN."""

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
        """`variables` are environment variables that secrets refer to. Raises TimeoutError, OSError."""
        command = [*self._command, "--project-name", project.name]
        command += ["--project-directory", str(project.directory)]
        command += ["--env-file", str(project.env_file)]
        command += ["--file", str(project.file)]
        if self.is_old:
            command += ["--compatibility"]  # without it, v1 ignores the limits under `deploy`
        return await run(
            [*command, *arguments],
            env={**variables, **self._env()},
            cwd=project.directory,
            deadline=deadline,
            lock=lock,
            stdin=stdin,
        )

    def _env(self) -> dict[str, str]:
        return _environment() | {
            "DOCKER_HOST": self._docker_host,
            "COMPOSE_ANSI": "never",
            "COMPOSE_INTERACTIVE_NO_CLI": "1",
            "COMPOSE_HTTP_TIMEOUT": "120",
        }


async def detect(binary: str, docker_host: str) -> ComposeCli | None:
    """`binary` is the configured command: a path, a name, or "docker compose"; "" detects one."""
    candidates = [tuple(binary.split())] if binary else [_PLUGIN, _STANDALONE]
    for command in candidates:
        version = await _version(command)
        if version:
            return ComposeCli(command, version, docker_host)
    if binary:
        raise SettingsError(
            f"invalid PERSYS_COMPOSE_BINARY {binary!r}: expected a Compose command, "
            "for example 'docker compose'; 'version --short' printed no version"
        )
    return None


async def _version(command: tuple[str, ...]) -> str:
    if not command or shutil.which(command[0]) is None:
        return ""
    try:
        ran = await run(
            [*command, "version", "--short"], env=_environment(), deadline=_DETECT_SECONDS
        )
    except (TimeoutError, OSError):
        return ""
    found = ran.out.strip()
    return found.removeprefix("v") if ran.ok and _VERSION.match(found) else ""


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


def env_text(values: Mapping[str, str], *, is_old: bool) -> str:
    """Lines of an env file that this Compose version parses to the same values."""
    return "".join(f"{name}={_quoted(value, is_old)}\n" for name, value in values.items())


def _quoted(value: str, is_old: bool) -> str:
    if is_old:
        # v1 expands ${…} after it removes quotes and escapes, and has no escape for it. A variable without
        # a name and with a default value produces the literal character.
        plain = value.replace("${", "\0{").replace("\\", "${:-\\}").replace("\0{", "${:-$}{")
    else:
        plain = value.replace("\\", "\\\\").replace("$", "\\$")
    escaped = plain.replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def error_text(text: str) -> str:
    """The end of the error output in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[-_MESSAGE_MAX:] or "Compose failed without a message"
