"""Checks ~/.persys/config.yaml, and the connection to the scheduler or the gateway: DNS, TCP and TLS."""

import os
import socket
from argparse import Namespace
from collections.abc import Iterator
from urllib.parse import urlsplit

from persys.cli.connect.context_file import context_path, permission_warning
from persys.cli.connect.diagnose import explain_tls_failure
from persys.cli.connect.settings import Settings, Transport, load_settings
from persys.cli.connect.tls import client_tls
from persys.cli.doctor.finding import Finding, fail, ok, warn
from persys.errors import PersysError, UnavailableError
from persys.infra.net.address import is_service
from persys.model.role import Role

_CONTEXT = "context"
_ENDPOINT = "endpoint"
SECONDS = 3.0
_ANOTHER = "use another with --scheduler or --api, or switch with `persysctl context use`"


def check_context(options: Namespace) -> tuple[list[Finding], Settings | None]:
    """The findings, and the settings; without settings no other check can run."""
    try:
        settings = load_settings(options)
    except PersysError as err:
        fix = f"correct {context_path()}, or use another context with --context"
        return [fail(_CONTEXT, str(err), fix)], None
    return list(_context_file(settings)), settings


def _context_file(settings: Settings) -> Iterator[Finding]:
    path = context_path()
    if warning := permission_warning():
        yield warn(_CONTEXT, warning, f"chmod 600 {path}")
    server = (
        f"the gateway {settings.gateway}"
        if settings.transport is Transport.HTTP
        else f"the scheduler {settings.scheduler}"
    )
    source = str(path) if path.exists() else "no file; from flags, variables and defaults"
    yield ok(_CONTEXT, f"uses {server} ({source})")


def check_endpoint(options: Namespace, settings: Settings) -> list[Finding]:
    if settings.transport is Transport.HTTP:
        parts = urlsplit(settings.gateway)
        port = parts.port or (8551 if parts.scheme == "https" else 80)
        return [_check_tcp(parts.hostname or "", port, settings.gateway, start="persys-gateway")]
    findings: list[Finding] = []
    for address in settings.scheduler.split(","):
        findings += (
            _check_srv(address)
            if is_service(address)
            else [_check_scheduler(options, settings, address)]
        )
    return findings


def _check_srv(name: str) -> list[Finding]:
    from persys.infra.net.srv import find_service  # slow to import

    server = os.environ.get("PERSYS_DNS_SERVER", "")
    try:
        addresses = find_service(name, server=server, deadline_seconds=SECONDS)
    except UnavailableError as err:
        resolver = f"PERSYS_DNS_SERVER={server}" if server else "the resolver of this machine"
        fix = f"check that {resolver} answers and has the record (dig SRV {name}), or use host:port"
        return [fail("dns", str(err), fix)]
    return [ok("dns", f"{name} is {', '.join(addresses)}")]


def _check_scheduler(options: Namespace, settings: Settings, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    reached = _check_tcp(host.strip("[]"), int(port), address, start="`persys up`")
    if reached.level != "ok":
        return reached
    try:
        trust = client_tls(options, os.environ, settings.file)
        why = explain_tls_failure(address, Role.SCHEDULER, trust)
    except PersysError as err:
        return ok(
            _ENDPOINT, f"{address} accepts connections, but the certificate is unusable: {err}"
        )
    if why:
        fix = "correct the setting; `persysctl context add` saves it"
        return fail(_ENDPOINT, f"{address}: {why}", fix)
    return reached


def _check_tcp(host: str, port: int, named: str, *, start: str) -> Finding:
    try:
        with socket.create_connection((host, port), SECONDS):
            return ok(_ENDPOINT, f"{named} accepts connections")
    except socket.gaierror:
        return fail(_ENDPOINT, f"cannot resolve {host}", f"correct the name or DNS; {_ANOTHER}")
    except ConnectionRefusedError:
        fix = f"start it there ({start}; systemctl status), open its port, or {_ANOTHER}"
        return fail(_ENDPOINT, f"connection refused: {named}", fix)
    except OSError as err:
        fix = f"check firewalls and routes to {host}; {_ANOTHER}"
        return fail(_ENDPOINT, f"cannot reach {named}: {err.strerror or err}", fix)
