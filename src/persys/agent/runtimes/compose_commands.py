"""What Compose is told to do with one stack: build, make, bring up. Its failures come back in our words."""

import asyncio
import json
from pathlib import Path
from typing import Any

from persys.agent.runtimes.compose_cli import ComposeCli, Project
from persys.agent.runtimes.compose_override import no_waiting
from persys.agent.runtimes.compose_place import StackPlace, StackRecord
from persys.agent.runtimes.compose_source import last_words
from persys.agent.runtimes.docker_engine import Engine
from persys.errors import RuntimeUnavailableError
from persys.infra.files import write_whole
from persys.model.failure import Failure, FailureReason

UP_DEADLINE_SECONDS = 1800.0  # a service may wait for another one to be healthy, or to end
CREATE_DEADLINE_SECONDS = 600.0
BUILD_DEADLINE_SECONDS = 1700.0


class ComposeCommands:
    def __init__(self, cli: ComposeCli, engine: Engine) -> None:
        self._cli = cli
        self._engine = engine

    async def build(self, name: str, place: StackPlace, record: StackRecord) -> Failure | None:
        # Nothing was made yet, so the file that is added has nothing to say.
        project = _project(name, place, record)._replace(files=(Path(record.file),))
        return await self._run(
            project, place, "build", deadline=BUILD_DEADLINE_SECONDS, code="BuildFailed"
        )

    async def make(
        self, name: str, place: StackPlace, record: StackRecord, override: dict[str, Any]
    ) -> Failure | None:
        """Create and replace containers, and start none."""
        await asyncio.to_thread(write_whole, place.override, json.dumps(override).encode())
        project = _project(name, place, record)
        if self._cli.is_old and record.waits:
            text = json.dumps(no_waiting(record))
            await asyncio.to_thread(write_whole, place.no_waiting, text.encode())
            project = project._replace(files=(*project.files, place.no_waiting))
        words = ("up", "--no-start", "--no-build", "--remove-orphans")
        return await self._run(project, place, *words, deadline=CREATE_DEADLINE_SECONDS)

    async def bring_up(self, name: str, place: StackPlace, record: StackRecord) -> Failure | None:
        words = ("up", "--detach", "--no-recreate", "--no-build")
        project = _project(name, place, record)
        return await self._run(project, place, *words, deadline=UP_DEADLINE_SECONDS)

    async def _run(
        self, project: Project, place: StackPlace, *words: str, deadline: float, code: str = ""
    ) -> Failure | None:
        try:
            ran = await self._cli.run(project, *words, deadline=deadline, lock=place.lock)
        except TimeoutError:
            text = f"compose {words[0]} did not end within {deadline:.0f} s"
            return Failure(FailureReason.RUNTIME_ERROR, text, code=code)
        except OSError as err:
            raise RuntimeUnavailableError(f"compose cannot be run: {err.strerror}") from err
        if ran.ok:
            return None
        await self._engine.knock()  # no answer of Docker is no failure of the workload
        return Failure(FailureReason.RUNTIME_ERROR, last_words(ran.err), code=code)


def _project(name: str, place: StackPlace, record: StackRecord) -> Project:
    file = Path(record.file)
    return Project(name, file.parent, place.env_file, (file, place.override))
