"""Detects and runs the Compose command of this host: v2 as a docker plugin, v2 standalone, or v1.

Compose runs with a fixed environment: variables in a Compose file are resolved from the spec alone.
`ComposeCommands` builds, creates and starts a stack; the document is passed on standard input.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from persys.agent.runtimes.compose import document as documents
from persys.agent.runtimes.compose.document import Document, without_health_conditions
from persys.agent.runtimes.compose.state_dir import StackStateDir
from persys.agent.runtimes.docker.engine import Engine
from persys.errors import RuntimeUnavailableError, SettingsError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.subprocesses import ProgramLock, ProgramResult, run
from persys.model.status import Failure, FailureReason

_DETECT_SECONDS = 20.0
_MESSAGE_MAX = 1000
_VERSION = re.compile(r"v?(\d+)\.\d+")
_PASSED = ("PATH", "HOME", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_PLUGIN = ("docker", "compose")
_STANDALONE = ("docker-compose",)
_NO_VARIABLES: Mapping[str, str] = {}


STDIN = Path("-")


UP_DEADLINE_SECONDS = 1800.0  # a service may wait until another one is healthy or has exited
CREATE_DEADLINE_SECONDS = 600.0
BUILD_DEADLINE_SECONDS = 1700.0
BUILDS_MAX = 2  # at once: a build uses all CPUs that it can get
_RECREATE = ("--force-recreate", "--no-deps", "--no-build")


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
    def is_v1(self) -> bool:
        return self.version.startswith("1.")

    async def run(
        self,
        project: Project,
        *arguments: str,
        deadline: float,
        lock: ProgramLock | None = None,
        stdin: bytes = b"",
        variables: Mapping[str, str] = _NO_VARIABLES,
    ) -> ProgramResult:
        """`variables` are environment variables that secrets refer to. Raises TimeoutError, OSError."""
        command = [*self._command, "--project-name", project.name]
        command += ["--project-directory", str(project.directory)]
        command += ["--env-file", str(project.env_file)]
        command += ["--file", str(project.file)]
        if self.is_v1:
            command += ["--compatibility"]  # without it, v1 ignores the limits under `deploy`
        return await run(
            [*command, *arguments],
            env={**variables, **self._env()},
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


def env_text(values: Mapping[str, str], *, is_v1: bool) -> str:
    """Lines of an env file that this Compose version parses to the same values."""
    return "".join(f"{name}={_quoted(value, is_v1)}\n" for name, value in values.items())


def _quoted(value: str, is_v1: bool) -> str:
    if is_v1:
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


class Execution(NamedTuple):
    """A checked document with the agent's labels, and what Compose needs to execute it."""

    name: str
    state_dir: StackStateDir
    document: Document
    variables: Mapping[str, str]


class ComposeCommands:
    def __init__(self, cli: ComposeCli, engine: Engine, paths: PathCalls) -> None:
        self._cli = cli
        self._engine = engine
        self._paths = paths
        self._build_slots = asyncio.Semaphore(BUILDS_MAX)

    async def build(self, stack: Execution, queued: Callable[[str], None]) -> Failure | None:
        if self._build_slots.locked():
            queued(f"{BUILDS_MAX} stacks are being built")
        async with self._build_slots:
            deadline = BUILD_DEADLINE_SECONDS
            return await self._run(stack, "build", deadline=deadline, code="BuildFailed")

    async def create(self, stack: Execution) -> Failure | None:
        """Create and replace containers without starting them."""
        if self._cli.is_v1:
            stack = stack._replace(document=without_health_conditions(stack.document))
        arguments = ("up", "--no-start", "--no-build", "--remove-orphans")
        return await self._run(stack, *arguments, deadline=CREATE_DEADLINE_SECONDS)

    async def up(self, stack: Execution) -> Failure | None:
        arguments = ("up", "--detach", "--no-recreate", "--no-build")
        return await self._run(stack, *arguments, deadline=UP_DEADLINE_SECONDS)

    async def recreate(
        self, stack: Execution, services: Iterable[str], *, start: bool
    ) -> Failure | None:
        """Recreate the containers of these services, and start them if `start`. Their volumes stay."""
        mode = "--detach" if start else "--no-start"
        deadline = CREATE_DEADLINE_SECONDS  # it does not wait for other services
        return await self._run(stack, "up", mode, *_RECREATE, *sorted(services), deadline=deadline)

    async def _run(
        self, stack: Execution, *arguments: str, deadline: float, code: str = ""
    ) -> Failure | None:
        state_dir = stack.state_dir
        project = Project(stack.name, state_dir.project, state_dir.no_variables, STDIN)
        try:
            ran = await self._cli.run(
                project,
                *arguments,
                deadline=deadline,
                lock=ProgramLock(state_dir.lock, self._paths),
                stdin=documents.encode(stack.document),
                variables=stack.variables,
            )
        except TimeoutError:
            text = f"compose {arguments[0]} did not finish within {deadline:.0f} s"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=code)
        except OSError as err:
            raise RuntimeUnavailableError(f"cannot run compose: {err}") from err
        if ran.ok:
            return None
        await self._engine.check_reachable()  # if Docker is down, the workload has not failed
        return Failure(FailureReason.RUNTIME_ERROR, error_text(ran.err), code=code)
