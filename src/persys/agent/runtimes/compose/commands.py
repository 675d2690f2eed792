"""Runs Compose for one stack: build, create, start. The document is passed on standard input."""

import asyncio
from collections.abc import Callable, Iterable

from persys.agent.runtimes.compose import document as documents
from persys.agent.runtimes.compose.cli import STDIN, ComposeCli, Project
from persys.agent.runtimes.compose.document import Document
from persys.agent.runtimes.compose.override import no_waiting
from persys.agent.runtimes.compose.source import Prepared, last_words
from persys.agent.runtimes.compose.state_dir import StackPlace
from persys.agent.runtimes.docker.engine import Engine
from persys.errors import RuntimeUnavailableError
from persys.model.status import Failure, FailureReason

UP_DEADLINE_SECONDS = 1800.0  # a service may wait until another one is healthy or has exited
CREATE_DEADLINE_SECONDS = 600.0
BUILD_DEADLINE_SECONDS = 1700.0
BUILDS_MAX = 2  # at once: a build uses all CPUs that it can get
_RECREATE = ("--force-recreate", "--no-deps", "--no-build")


class ComposeCommands:
    """`document` is the checked document of `prepared` with the agent's labels."""

    def __init__(self, cli: ComposeCli, engine: Engine) -> None:
        self._cli = cli
        self._engine = engine
        self._build_room = asyncio.Semaphore(BUILDS_MAX)

    async def build(
        self, name: str, place: StackPlace, prepared: Prepared, queued: Callable[[str], None]
    ) -> Failure | None:
        if self._build_room.locked():
            queued(f"{BUILDS_MAX} stacks are being built")
        async with self._build_room:
            return await self._run(
                name,
                place,
                prepared,
                prepared.document,
                "build",
                deadline=BUILD_DEADLINE_SECONDS,
                code="BuildFailed",
            )

    async def make(
        self, name: str, place: StackPlace, prepared: Prepared, document: Document
    ) -> Failure | None:
        """Create and replace containers without starting them."""
        if self._cli.is_old:
            document = no_waiting(document)
        words = ("up", "--no-start", "--no-build", "--remove-orphans")
        deadline = CREATE_DEADLINE_SECONDS
        return await self._run(name, place, prepared, document, *words, deadline=deadline)

    async def bring_up(
        self, name: str, place: StackPlace, prepared: Prepared, document: Document
    ) -> Failure | None:
        words = ("up", "--detach", "--no-recreate", "--no-build")
        deadline = UP_DEADLINE_SECONDS
        return await self._run(name, place, prepared, document, *words, deadline=deadline)

    async def recreate(
        self,
        name: str,
        place: StackPlace,
        prepared: Prepared,
        document: Document,
        services: Iterable[str],
        *,
        start: bool,
    ) -> Failure | None:
        """Recreate the containers of these services, and start them if `start`. Their volumes stay."""
        mode, deadline = (
            ("--detach", UP_DEADLINE_SECONDS) if start else ("--no-start", CREATE_DEADLINE_SECONDS)
        )
        words = ("up", mode, *_RECREATE, *sorted(services))
        return await self._run(name, place, prepared, document, *words, deadline=deadline)

    async def _run(
        self,
        name: str,
        place: StackPlace,
        prepared: Prepared,
        document: Document,
        *words: str,
        deadline: float,
        code: str = "",
    ) -> Failure | None:
        project = Project(name, place.project, place.no_variables, STDIN)
        try:
            ran = await self._cli.run(
                project,
                *words,
                deadline=deadline,
                lock=place.lock,
                stdin=documents.encode(document),
                variables=prepared.variables,
            )
        except TimeoutError:
            text = f"compose {words[0]} did not finish within {deadline:.0f} s"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=code)
        except OSError as err:
            raise RuntimeUnavailableError(f"cannot run compose: {err}") from err
        if ran.ok:
            return None
        await self._engine.knock()  # if Docker is down, the workload has not failed
        return Failure(FailureReason.RUNTIME_ERROR, last_words(ran.err), code=code)
