"""Checks ~/.persys/config.yaml, the client certificate and the connection to the server: DNS, TCP and TLS."""

import os
import socket
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from persys.cli.connect.context_file import context_path, permission_warning
from persys.cli.connect.diagnose import explain_tls_failure
from persys.cli.connect.settings import Settings, Transport, load_settings
from persys.cli.connect.tls import client_tls
from persys.cli.doctor.finding import Finding, Level, fail, ok, warn
from persys.errors import PersysError, SettingsError, UnavailableError
from persys.infra.net.address import is_service
from persys.model.role import Role

if TYPE_CHECKING:
    from persys.infra.tls.identity import Claims

_CONTEXT = "context"
_ENDPOINT = "endpoint"
SECONDS = 3.0
_ANOTHER = "use another with --scheduler or --api, or switch with `persysctl context use`"
CHECK = "certificate"
EXPIRES_SOON = timedelta(hours=2)
GET_CERTIFICATE = (
    "`persysctl certificate create --role admin --name YOU`, run by a user with a valid one, or "
    "`persys-ca certificate --role admin --name YOU` on the host of the CA"
)
RENEW_CREDENTIALS = (
    "`persysctl token create --role operator --name YOU`, run by an admin; then set PERSYS_TOKEN, or save it "
    "with `persysctl context add NAME --token-file FILE`"
)
_USER_ROLES = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})
_OTHERS_MASK = 0o077


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
        return [
            _check_tcp(
                parts.hostname or "",
                port,
                settings.gateway,
                start="`systemctl start persys-gateway`",
            )
        ]
    findings: list[Finding] = []
    for address in settings.scheduler.split(","):
        findings += (
            _check_srv(address)
            if is_service(address)
            else [_check_scheduler(options, settings, address)]
        )
    if any(finding.level is Level.OK for finding in findings):  # the others serve all requests
        return [
            each._replace(level=Level.WARN) if each.level is Level.FAIL else each
            for each in findings
        ]
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
    reached = _check_tcp(
        host.strip("[]"),
        int(port),
        address,
        start="`persys up`, or `systemctl start persys-scheduler`",
    )
    if reached.level != "ok":
        return reached
    try:
        trust = client_tls(options, os.environ, settings.file)
        why = explain_tls_failure(address, Role.SCHEDULER, trust)
    except PersysError:
        return reached  # the check of the certificate has reported it
    if why:
        fix = "save the correct setting with `persysctl context add NAME`; `persysctl help connection`"
        return fail(_ENDPOINT, f"{address}: {why}", fix)
    return reached


def _check_tcp(host: str, port: int, named: str, *, start: str) -> Finding:
    try:
        with socket.create_connection((host, port), SECONDS):
            return ok(_ENDPOINT, f"{named} accepts connections")
    except socket.gaierror:
        return fail(_ENDPOINT, f"cannot resolve {host}", f"correct the name or DNS; {_ANOTHER}")
    except ConnectionRefusedError:
        fix = f"start it there with {start}, open its port, or {_ANOTHER}"
        return fail(_ENDPOINT, f"connection refused: {named}", fix)
    except OSError as err:
        fix = f"check firewalls and routes to {host}; {_ANOTHER}"
        return fail(_ENDPOINT, f"cannot reach {named}: {err.strerror or err}", fix)


def check_certificate(options: Namespace, settings: Settings, now: datetime) -> Iterator[Finding]:
    if settings.transport is Transport.HTTP and (
        settings.gateway.startswith("http://") or settings.token
    ):
        yield ok(CHECK, "not required: a token is used, or the gateway runs with -insecure")
        return
    try:
        trust = client_tls(options, os.environ, settings.file)
    except SettingsError as err:
        # The other lines list ways to get one.
        text = str(err).partition("\n")[0].removesuffix(". Use one of these:")
        yield fail(CHECK, text, GET_CERTIFICATE)
        return
    if trust is None:
        yield warn(
            CHECK,
            "none is used, and all data is sent in plain text (--insecure)",
            "remove --insecure, PERSYS_INSECURE and grpc_insecure, unless this is a test",
        )
        return
    from persys.infra.tls.certificates import read_key_pair  # slow to import

    try:
        pair = read_key_pair(trust.files, now)
    except SettingsError as err:
        yield fail(CHECK, str(err), GET_CERTIFICATE)
        return
    yield from _check_validity(pair.claims, str(trust.files.certificate), now)
    yield from _check_issuer(pair.chain, pair.roots, str(trust.files.roots))
    yield from _check_key_file(trust.files.key)


def _check_validity(claims: "Claims", named: str, now: datetime) -> Iterator[Finding]:
    who = str(claims.identity) if claims.identity is not None else "an unknown identity"
    until = f"{claims.not_after:%Y-%m-%d %H:%M} UTC"
    if now < claims.not_before:
        yield fail(
            CHECK,
            f"{named} is not valid before {claims.not_before:%Y-%m-%d %H:%M:%S} UTC",
            "set the clock of this machine (timedatectl set-ntp true)",
        )
    elif claims.not_after - now < min(EXPIRES_SOON, (claims.not_after - claims.not_before) / 4):
        yield warn(CHECK, f"{named} of {who} expires soon, at {until}", GET_CERTIFICATE)
    elif claims.identity is None or claims.identity.role not in _USER_ROLES:
        yield fail(
            CHECK,
            f"{named} belongs to {who}, which is not a user",
            f"use one of an admin, operator or viewer with --cert and --key: {GET_CERTIFICATE}",
        )
    else:
        yield ok(CHECK, f"{who}, valid until {until}")


def _check_issuer(chain: bytes, roots: bytes, named: str) -> Iterator[Finding]:
    """Warn unless the chain ends at one of the CA certificates."""
    from cryptography.x509 import load_pem_x509_certificates

    links = load_pem_x509_certificates(chain)
    known = {one.subject for one in load_pem_x509_certificates(roots)}
    if links[-1].issuer not in known and links[-1].subject not in known:
        yield warn(
            CHECK,
            f"it is not signed by a CA in {named}",
            "use the CA certificates of the same cluster with --ca, or a certificate of this cluster",
        )


def _check_key_file(path: Path) -> Iterator[Finding]:
    mode = path.stat().st_mode & 0o777
    if mode & _OTHERS_MASK:
        yield warn(
            CHECK, f"{path} is accessible to other users (mode {mode:o})", f"chmod 600 {path}"
        )
