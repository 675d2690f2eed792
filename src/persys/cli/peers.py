"""Connections for one command, and what to tell a user when nobody answers."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from persys.cli.context_file import wide_open
from persys.cli.finding import find_scheduler
from persys.cli.settings import AUTHORITY, Settings, Transport, load
from persys.cli.trust import trust_of
from persys.errors import SettingsError, UnavailableError
from persys.model.role import Role

if TYPE_CHECKING:
    from persys.client import AgentClient, SchedulerClient
    from persys.client.authority import AuthorityClient
    from persys.client.mode import ToldMode


@contextmanager
def scheduler(options: Namespace, *, quiet: bool = False) -> Iterator["SchedulerClient"]:
    """Unless `quiet`, a line on standard error says when answers come from memory."""
    settings = _settings(options)
    told_mode = None if quiet else _Notice().tell
    if settings.transport is Transport.HTTP:
        with _by_gateway(options, settings, told_mode) as client:
            yield client
        return
    from persys.client.scheduler import SchedulerClient

    trust = trust_of(options, os.environ, settings.file)
    target = find_scheduler(settings.scheduler, timeout=settings.request_timeout)
    with SchedulerClient(
        target,
        timeout=settings.request_timeout,
        told_mode=told_mode,
        trust=trust,
        token=settings.token,
    ) as client:
        try:
            yield client
        except UnavailableError as err:
            from persys.cli.handshake import explain

            why = explain(client.target, Role.SCHEDULER, trust) or str(err)
            raise UnavailableError(
                f"cannot reach the scheduler at {client.target}: {why}\n"
                "Start one with `persys up`, or name another with --scheduler HOST:PORT or "
                "PERSYS_GRPC_ENDPOINT; `persysctl doctor` looks closer."
            ) from err


@contextmanager
def _by_gateway(
    options: Namespace, settings: Settings, told_mode: "ToldMode | None"
) -> Iterator["SchedulerClient"]:
    from persys.cli.gateway_trust import gateway_of
    from persys.client.scheduler import SchedulerClient

    gateway = gateway_of(options, os.environ, settings)
    with SchedulerClient(gateway, timeout=settings.request_timeout, told_mode=told_mode) as client:
        try:
            yield client
        except UnavailableError as err:
            raise UnavailableError(
                f"{err}\nName another gateway with --api URL or PERSYS_API_ENDPOINT, or a scheduler "
                "with --scheduler HOST:PORT; `persysctl doctor` looks closer."
            ) from err


@contextmanager
def agent(options: Namespace) -> Iterator["AgentClient"]:
    from persys.client.agent import AgentClient

    settings = _settings(options)
    trust = trust_of(options, os.environ, settings.file)
    with AgentClient(settings.agent, timeout=settings.request_timeout, trust=trust) as client:
        try:
            yield client
        except UnavailableError as err:
            from persys.cli.handshake import explain

            why = explain(client.target, Role.AGENT, trust) or str(err)
            raise UnavailableError(
                f"cannot reach the agent at {client.target}: {why}\n"
                "Start one with `persys up`, or name another with --agent HOST:PORT."
            ) from err


@contextmanager
def authority(options: Namespace) -> Iterator["AuthorityClient"]:
    """Raises SettingsError when there is no certificate to show."""
    from persys.cli.credentials import certificate_files
    from persys.client.authority import AuthorityClient

    settings = _settings(options)
    file = settings.file
    said = options.authority or os.environ.get("PERSYS_CA_ADDR") or file.get("ca_endpoint")
    files = certificate_files(options, os.environ, file)
    if files is None:
        raise SettingsError(
            "the authority answers only who shows a certificate: name yours with --ca, --cert and "
            "--key; on the authority's machine `persys-ca certificate --role admin --name YOU` makes one"
        )
    addresses = [word.strip() for word in str(said or AUTHORITY).split(",")]
    client = AuthorityClient(addresses, files, timeout=settings.request_timeout)
    try:
        yield client
    except UnavailableError as err:
        raise UnavailableError(
            f"{err}\nName another authority with --authority HOST:PORT or PERSYS_CA_ADDR."
        ) from err


def _settings(options: Namespace) -> Settings:
    if open_to_others := wide_open():
        print(f"note: {open_to_others}", file=sys.stderr)
    return load(options)


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
