"""Connections for one command, and what to tell a user when nobody answers."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from persys.cli.finding import find_scheduler
from persys.cli.settings import load
from persys.errors import UnavailableError

if TYPE_CHECKING:
    from persys.client import AgentClient, SchedulerClient

# The library's own complaints on standard error would stand above ours and say less.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@contextmanager
def scheduler(options: Namespace, *, quiet: bool = False) -> Iterator["SchedulerClient"]:
    """Unless `quiet`, a line on standard error says when answers come from memory."""
    from persys.client.scheduler import SchedulerClient

    settings = load(options)
    told_mode = None if quiet else _Notice().tell
    target = find_scheduler(settings.scheduler, timeout=settings.request_timeout)
    with SchedulerClient(target, timeout=settings.request_timeout, told_mode=told_mode) as client:
        try:
            yield client
        except UnavailableError as err:
            raise UnavailableError(
                f"cannot reach the scheduler at {client.target}: {err}\n"
                "Start one with `persys up`, or name another with --scheduler HOST:PORT or "
                "PERSYS_GRPC_ENDPOINT."
            ) from err


@contextmanager
def agent(options: Namespace) -> Iterator["AgentClient"]:
    from persys.client.agent import AgentClient

    settings = load(options)
    with AgentClient(settings.agent, timeout=settings.request_timeout) as client:
        try:
            yield client
        except UnavailableError as err:
            raise UnavailableError(
                f"cannot reach the agent at {client.target}: {err}\n"
                "Start one with `persys up`, or name another with --agent HOST:PORT."
            ) from err


class _Notice:
    """Said once per command, however often it asks."""

    def __init__(self) -> None:
        self._said = False

    def tell(self, mode: str, data_age: timedelta) -> None:
        if not self._said:
            self._said = True
            print(
                f"note: the scheduler is in {mode} mode; it answers from memory, "
                f"{data_age.total_seconds():.0f}s old (persysctl recovery status)",
                file=sys.stderr,
            )
