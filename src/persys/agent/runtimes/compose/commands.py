"""Runs Compose for one stack: build, create, start. The document is passed on standard input."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from persys.agent.runtimes.compose import document as documents
from persys.agent.runtimes.compose.cli import STDIN, ComposeCli, Project, error_text
from persys.agent.runtimes.compose.document import Document, without_health_conditions
from persys.agent.runtimes.compose.state_dir import StackPlace
from persys.agent.runtimes.docker.engine import Engine
from persys.errors import RuntimeUnavailableError
from persys.model.status import Failure, FailureReason

UP_DEADLINE_SECONDS = 1800.0  # a service may wait until another one is healthy or has exited
CREATE_DEADLINE_SECONDS = 600.0
BUILD_DEADLINE_SECONDS = 1700.0
BUILDS_MAX = 2  # at once: a build uses all CPUs that it can get
_RECREATE = ("--force-recreate", "--no-deps", "--no-build")


class Execution(NamedTuple):
    """A checked document with the agent's labels, and what Compose needs to execute it."""

    name: str
    place: StackPlace
    document: Document
    variables: Mapping[str, str]


class ComposeCommands:
    def __init__(self, cli: ComposeCli, engine: Engine) -> None:
        self._cli = cli
        self._engine = engine
        self._build_slots = asyncio.Semaphore(BUILDS_MAX)

    async def build(self, stack: Execution, queued: Callable[[str], None]) -> Failure | None:
        if self._build_slots.locked():
            queued(f"{BUILDS_MAX} stacks are being built")
        async with self._build_slots:
            deadline = BUILD_DEADLINE_SECONDS
            return await self._run(stack, "build", deadline=deadline, code="BuildFailed")

    async def create(self, stack: Execution) -> Failure | None:
        """Create and replace containers without starting them."""
        if self._cli.is_old:
            stack = stack._replace(document=without_health_conditions(stack.document))
        words = ("up", "--no-start", "--no-build", "--remove-orphans")
        return await self._run(stack, *words, deadline=CREATE_DEADLINE_SECONDS)

    async def up(self, stack: Execution) -> Failure | None:
        words = ("up", "--detach", "--no-recreate", "--no-build")
        return await self._run(stack, *words, deadline=UP_DEADLINE_SECONDS)

    async def recreate(
        self, stack: Execution, services: Iterable[str], *, start: bool
    ) -> Failure | None:
        """Recreate the containers of these services, and start them if `start`. Their volumes stay."""
        mode, deadline = (
            ("--detach", UP_DEADLINE_SECONDS) if start else ("--no-start", CREATE_DEADLINE_SECONDS)
        )
        return await self._run(stack, "up", mode, *_RECREATE, *sorted(services), deadline=deadline)

    async def _run(
        self, stack: Execution, *words: str, deadline: float, code: str = ""
    ) -> Failure | None:
        place = stack.place
        project = Project(stack.name, place.project, place.no_variables, STDIN)
        try:
            ran = await self._cli.run(
                project,
                *words,
                deadline=deadline,
                lock=place.lock,
                stdin=documents.encode(stack.document),
                variables=stack.variables,
            )
        except TimeoutError:
            text = f"compose {words[0]} did not finish within {deadline:.0f} s"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=code)
        except OSError as err:
            raise RuntimeUnavailableError(f"cannot run compose: {err}") from err
        if ran.ok:
            return None
        await self._engine.knock()  # if Docker is down, the workload has not failed
        return Failure(FailureReason.RUNTIME_ERROR, error_text(ran.err), code=code)
