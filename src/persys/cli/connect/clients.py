"""Clients for one command, and the error message when the server does not respond."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.connect.context_file import permission_warning
from persys.cli.connect.endpoints import resolve_scheduler
from persys.cli.connect.settings import AUTHORITY, Settings, Transport, load_settings
from persys.cli.connect.tls import client_tls
from persys.errors import SettingsError, UnavailableError
from persys.model.role import Role

if TYPE_CHECKING:
    from persys.client import AgentClient, SchedulerClient
    from persys.client.ca.client import AuthorityClient
    from persys.client.grpc.interceptors import OnMode


@contextmanager
def scheduler_client(options: Namespace, *, quiet: bool = False) -> Iterator["SchedulerClient"]:
    """Unless `quiet`, prints a note on standard error when answers come from memory."""
    settings = _settings(options)
    on_mode = None if quiet else _ModeNotice().notify
    if settings.transport is Transport.HTTP:
        with _gateway_client(options, settings, on_mode) as client:
            yield client
        return
    from persys.client.scheduler import SchedulerClient

    trust = client_tls(options, os.environ, settings.file)
    target = resolve_scheduler(settings.scheduler, timeout=settings.request_timeout)
    with SchedulerClient(
        target,
        timeout=settings.request_timeout,
        on_mode=on_mode,
        trust=trust,
        token=settings.token,
    ) as client:
        try:
            yield client
        except UnavailableError as err:
            from persys.cli.connect.diagnose import explain_tls_failure

            why = explain_tls_failure(client.target, Role.SCHEDULER, trust) or str(err)
            raise UnavailableError(
                f"cannot reach the scheduler at {client.target}: {why}\n"
                "Start one with `persys up`, or set the address with --scheduler HOST:PORT or "
                "PERSYS_GRPC_ENDPOINT; `persysctl doctor` checks the connection."
            ) from err


@contextmanager
def _gateway_client(
    options: Namespace, settings: Settings, on_mode: "OnMode | None"
) -> Iterator["SchedulerClient"]:
    from persys.cli.connect.tls import authenticated_gateway
    from persys.client.scheduler import SchedulerClient

    gateway = authenticated_gateway(options, os.environ, settings)
    with SchedulerClient(gateway, timeout=settings.request_timeout, on_mode=on_mode) as client:
        try:
            yield client
        except UnavailableError as err:
            raise UnavailableError(
                f"{err}\nSet the address of a gateway with --api URL or PERSYS_API_ENDPOINT, or of a "
                "scheduler with --scheduler HOST:PORT; `persysctl doctor` checks the connection."
            ) from err


@contextmanager
def remote_client(options: Namespace, address: str, token: str) -> Iterator["SchedulerClient"]:
    """An address of --remote: a gateway with a token, or a scheduler that runs with -insecure."""
    from persys.client.rest.connection import Gateway
    from persys.client.scheduler import SchedulerClient

    timeout = _settings(options).request_timeout
    target: str | Gateway = address
    hint = (
        "; host:port is for a scheduler that runs with -insecure, use the URL of a gateway "
        "otherwise, for example https://gateway:8551"
    )
    if "://" in address:
        roots = Path(options.remote_ca).expanduser() if options.remote_ca else None
        target = Gateway(address, roots=roots, token=token, cluster=options.remote_cluster)
        hint = ""
    with SchedulerClient(target, timeout=timeout, token=token) as client:
        try:
            yield client
        except UnavailableError as err:
            raise UnavailableError(
                f"cannot reach the remote cluster at {address}: {err}{hint}"
            ) from err


@contextmanager
def agent_client(options: Namespace) -> Iterator["AgentClient"]:
    from persys.client.agent import AgentClient

    settings = _settings(options)
    trust = client_tls(options, os.environ, settings.file)
    with AgentClient(settings.agent, timeout=settings.request_timeout, trust=trust) as client:
        try:
            yield client
        except UnavailableError as err:
            from persys.cli.connect.diagnose import explain_tls_failure

            why = explain_tls_failure(client.target, Role.AGENT, trust) or str(err)
            raise UnavailableError(
                f"cannot reach the agent at {client.target}: {why}\n"
                "Start one with `persys up`, or set the address with --agent HOST:PORT."
            ) from err


@contextmanager
def ca_client(options: Namespace) -> Iterator["AuthorityClient"]:
    """Raises SettingsError without a client certificate."""
    from persys.cli.connect.tls import certificate_files
    from persys.client.ca.client import AuthorityClient

    settings = _settings(options)
    file = settings.file
    value = options.authority or os.environ.get("PERSYS_CA_ADDR") or file.get("ca_endpoint")
    files = certificate_files(options, os.environ, file)
    if files is None:
        raise SettingsError(
            "the CA requires a client certificate: set --ca, --cert and --key; create one on the host "
            "of the CA with `persys-ca certificate --role admin --name YOU`"
        )
    addresses = [word.strip() for word in str(value or AUTHORITY).split(",")]
    client = AuthorityClient(addresses, files, timeout=settings.request_timeout)
    try:
        yield client
    except UnavailableError as err:
        raise UnavailableError(
            f"{err}\nSet the address of the CA with --authority HOST:PORT or PERSYS_CA_ADDR."
        ) from err


def _settings(options: Namespace) -> Settings:
    if warning := permission_warning():
        print(f"note: {warning}", file=sys.stderr)
    return load_settings(options)


class _ModeNotice:
    """Prints the mode of the scheduler once per command."""

    def __init__(self) -> None:
        self._shown = False

    def notify(self, mode: str, data_age: timedelta) -> None:
        if not self._shown:
            self._shown = True
            print(
                f"note: the scheduler is in {mode} mode; this data comes from its memory and is "
                f"{data_age.total_seconds():.0f}s old; see `persysctl recovery status`",
                file=sys.stderr,
            )
