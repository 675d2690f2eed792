"""Concurrent builds and config runs are limited, and waiting is reported."""

import asyncio
from pathlib import Path
from typing import Any

from persys.agent.runtimes.compose.cli import BUILDS_MAX, ComposeCommands, Execution, Project
from persys.agent.runtimes.compose.source import CONFIGS_MAX, ComposeSource
from persys.agent.runtimes.compose.state_dir import StackStateDir
from persys.agent.workloads.node_policy import NodePolicy
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.subprocesses import ProgramResult
from persys.model.ids import WorkloadId
from persys.model.status import Failure


class SlowCompose:
    """Blocks until the test releases it, and counts concurrent runs."""

    is_v1 = False

    def __init__(self, ran: ProgramResult) -> None:
        self._ran = ran
        self.may_end = asyncio.Event()
        self.running = self.most = 0

    async def run(self, _project: Project, *_words: str, **_options: Any) -> ProgramResult:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may_end.wait()
        self.running -= 1
        return self._ran


async def settled(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.01)


async def test_concurrent_builds_are_limited(tmp_path: Path) -> None:
    cli, reported = SlowCompose(ProgramResult(0, "", "")), list[str]()
    commands = ComposeCommands(cli, None, ThreadPathCalls())  # type: ignore[arg-type]  # stand-ins
    stack = Execution("web", StackStateDir(tmp_path, WorkloadId("web")), {}, {})
    async with asyncio.TaskGroup() as group:
        for _ in range(BUILDS_MAX + 2):
            group.create_task(commands.build(stack, reported.append))
        await settled(lambda: len(reported) == 2)
        cli.may_end.set()

    assert cli.most == BUILDS_MAX
    assert reported == [f"{BUILDS_MAX} stacks are being built"] * 2


async def test_concurrent_config_runs_are_limited(tmp_path: Path) -> None:
    cli, reported = SlowCompose(ProgramResult(0, "services: {}", "")), list[str]()
    policy = NodePolicy(False, (), ())
    source = ComposeSource(cli, None, policy, ThreadPathCalls(), pids_max=1)  # type: ignore[arg-type]
    project = Project("web", tmp_path, tmp_path / "env", tmp_path / "file")
    async with asyncio.TaskGroup() as group:
        for _ in range(CONFIGS_MAX + 1):
            group.create_task(source._config(project, reported.append))
        await settled(lambda: len(reported) == 1)
        cli.may_end.set()

    assert cli.most == CONFIGS_MAX
    assert reported == [f"{CONFIGS_MAX} Compose files are being resolved"]


async def test_a_resolved_compose_file_over_the_limit_is_rejected(tmp_path: Path) -> None:
    cli = SlowCompose(ProgramResult(0, "the end of it", "", is_cut=True))
    cli.may_end.set()
    policy = NodePolicy(False, (), ())
    source = ComposeSource(cli, None, policy, ThreadPathCalls(), pids_max=1)  # type: ignore[arg-type]

    response = await source._config(
        Project("web", tmp_path, tmp_path / "env", tmp_path / "file"), lambda _failure_reason: None
    )

    assert isinstance(response, Failure)
    assert "printed more than" in response.message
