"""Checks the connection to the scheduler or the gateway: DNS, TCP and TLS."""

import os
import socket
from argparse import Namespace
from urllib.parse import urlsplit

from persys.cli.connect.diagnose import explain
from persys.cli.connect.settings import Settings, Transport
from persys.cli.connect.tls import trust_of
from persys.cli.doctor.finding import Finding, fail, ok
from persys.errors import PersysError, UnavailableError
from persys.infra.net.address import is_service
from persys.model.role import Role

CHECK = "endpoint"
SECONDS = 3.0
_ANOTHER = "use another with --scheduler or --api, or switch with `persysctl context use`"


def look(options: Namespace, settings: Settings) -> list[Finding]:
    if settings.transport is Transport.HTTP:
        parts = urlsplit(settings.gateway)
        port = parts.port or (8551 if parts.scheme == "https" else 80)
        return [_reached(parts.hostname or "", port, settings.gateway, start="persys-gateway")]
    found: list[Finding] = []
    for one in settings.scheduler.split(","):
        found += _service(one) if is_service(one) else [_scheduler(options, settings, one)]
    return found


def _service(name: str) -> list[Finding]:
    from persys.infra.net.srv import find_service  # slow to import

    server = os.environ.get("PERSYS_DNS_SERVER", "")
    try:
        addresses = find_service(name, server=server, deadline_seconds=SECONDS)
    except UnavailableError as err:
        whom = f"PERSYS_DNS_SERVER={server}" if server else "the resolver of this machine"
        cure = f"check that {whom} answers and has the record (dig SRV {name}), or use host:port"
        return [fail("dns", str(err), cure)]
    return [ok("dns", f"{name} is {', '.join(addresses)}")]


def _scheduler(options: Namespace, settings: Settings, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    reached = _reached(host.strip("[]"), int(port), address, start="`persys up`")
    if reached.level != "ok":
        return reached
    try:
        trust = trust_of(options, os.environ, settings.file)
        why = explain(address, Role.SCHEDULER, trust)
    except PersysError as err:
        return ok(CHECK, f"{address} accepts connections, but the certificate is unusable: {err}")
    if why:
        fix = "correct the setting; `persysctl context add` saves it"
        return fail(CHECK, f"{address}: {why}", fix)
    return reached


def _reached(host: str, port: int, named: str, *, start: str) -> Finding:
    try:
        with socket.create_connection((host, port), SECONDS):
            return ok(CHECK, f"{named} accepts connections")
    except socket.gaierror:
        return fail(CHECK, f"cannot resolve {host}", f"correct the name or DNS; {_ANOTHER}")
    except ConnectionRefusedError:
        cure = f"start it there ({start}; systemctl status), open its port, or {_ANOTHER}"
        return fail(CHECK, f"connection refused: {named}", cure)
    except OSError as err:
        cure = f"check firewalls and routes to {host}; {_ANOTHER}"
        return fail(CHECK, f"cannot reach {named}: {err.strerror or err}", cure)
