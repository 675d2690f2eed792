"""Detects Compose and git on this host and builds the Compose runtime."""

import shutil
from pathlib import Path

import structlog

from persys.agent.credentials import Credentials
from persys.agent.runtimes.compose.cli import detect
from persys.agent.runtimes.compose.git import Git
from persys.agent.runtimes.compose.runtime import ComposeRuntime
from persys.agent.runtimes.compose.source import ComposeSource
from persys.agent.runtimes.docker.disk_limits import DiskLimits
from persys.agent.runtimes.docker.engine import Engine
from persys.agent.runtimes.docker.mapping import Owner
from persys.agent.runtimes.docker.pull import Puller
from persys.agent.settings import AgentSettings
from persys.agent.workloads.node_policy import NodePolicy
from persys.infra.aio.path_calls import PathCalls
from persys.model.volume import GIB

log = structlog.get_logger()


async def find_compose(
    settings: AgentSettings,
    engine: Engine,
    owner: Owner,
    *,
    policy: NodePolicy,
    puller: Puller,
    credentials: Credentials,
    paths: PathCalls,
    disk_limits: DiskLimits,
    is_first: bool,
) -> ComposeRuntime | None:
    """None if Compose is absent or disabled, which is logged once. Raises SettingsError."""
    if not settings.compose_enabled:
        return None
    cli = await detect(settings.compose_binary, settings.docker_host)
    if cli is None:
        write = log.info if is_first else log.debug
        write("compose.absent", reason="neither 'docker compose' nor 'docker-compose' is installed")
        return None
    git = None
    if has_git():
        git = Git(credentials, paths, bytes_max=settings.git_max_gb * GIB)
    log.info("compose.found", version=cli.version, git=git is not None)
    return ComposeRuntime(
        cli,
        ComposeSource(cli, git, policy, paths, pids_max=settings.pids_max),
        engine,
        owner,
        paths,
        puller=puller,
        root=_root(settings),
        stop_grace_seconds=round(settings.stop_grace.total_seconds()),
        pids_max=settings.pids_max,
        disk_limits=disk_limits,
    )


def has_git() -> bool:
    return shutil.which("git") is not None


def _root(settings: AgentSettings) -> Path:
    return settings.state_path.absolute().parent / "stacks"
