"""`persysctl certificate`: issue, list and revoke certificates."""

import sys
from argparse import Namespace
from datetime import datetime
from pathlib import Path

from persys.cli.connect.clients import ca_client
from persys.cli.connect.settings import duration, load_settings
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import code_text, render_rows
from persys.client.ca.client import issued, join
from persys.errors import SettingsError
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.clock import SystemClock
from persys.infra.tls.identity import read_claims
from persys.infra.tls.keys import Issued, key_pem, new_key, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.join_token import read_token
from persys.wire.ca.messages import CertificateRequest, CertificateView, RevokeRequest

_LIMIT = 100
_STDIN = "-"


def create(options: Namespace) -> ExitCode:
    """Create a key and request a certificate. The key never leaves this machine."""
    ttl = duration(options.ttl, "--ttl").total_seconds() if options.ttl else None
    identity = Identity(Role(options.role), options.name)
    key = new_key()
    csr = new_request(key, identity, options.host).decode()
    with ca_client(options) as client:
        made = client.create(CertificateRequest(options.role, options.name, csr, ttl))
    return _write(options, identity, key_pem(key), issued(made))


def use_token(options: Namespace) -> ExitCode:
    token = read_token(sys.stdin.readline() if options.token == _STDIN else options.token)
    identity = Identity(Role(token.role), token.name)
    key = new_key()
    csr = new_request(key, identity, options.host)
    given = join(token, csr, timeout=load_settings(options).request_timeout)
    return _write(options, identity, key_pem(key), given)


def show(options: Namespace) -> ExitCode:
    with ca_client(options) as client:
        views = client.certificates(options.limit or _LIMIT)
    now = SystemClock().now()
    print(
        render_rows(
            views,
            options,
            columns={
                "SERIAL": lambda view: view.serial,
                "IDENTITY": lambda view: f"{view.role}/{view.name}",
                "STATE": lambda view: code_text(_state(view, now)),
                "EXPIRES": lambda view: f"{view.expires_at:%Y-%m-%d %H:%M}",
                "METHOD": lambda view: view.how,
                "HOSTS": lambda view: ",".join(view.hosts),
            },
            name=lambda view: view.serial,
            empty="no certificates",
        )
    )
    return ExitCode.OK


def revoke(options: Namespace) -> ExitCode:
    role, slash, name = options.which.partition("/")
    which = {"role": role, "name": name} if slash else {"serial": options.which}
    with ca_client(options) as client:
        serials = client.revoke(RevokeRequest(**which, reason=options.reason))
    for serial in serials:
        print(f"certificate {serial} is revoked")
    return ExitCode.OK


def audit(options: Namespace) -> ExitCode:
    with ca_client(options) as client:
        lines = client.audit(options.limit or _LIMIT)
    print(
        render_rows(
            lines,
            options,
            columns={
                "TIME": lambda line: f"{line.at:%Y-%m-%d %H:%M:%S}",
                "ACTION": lambda line: line.deed,
                "TARGET": lambda line: line.what,
                "IDENTITY": lambda line: line.who,
                "DETAIL": lambda line: line.detail,
            },
            name=lambda line: str(line.number),
            empty="no audit entries",
        )
    )
    return ExitCode.OK


def _write(options: Namespace, identity: Identity, key: bytes, given: Issued) -> ExitCode:
    folder = Path(options.out)
    certificate = folder / f"{identity.role}.crt"
    private = folder / f"{identity.role}.key"
    roots = folder / "ca.crt"
    try:
        write_files(
            [
                (roots, given.roots_pem, PUBLIC),
                (private, key, PRIVATE),
                (certificate, given.chain_pem, PUBLIC),
            ]
        )
    except OSError as err:
        raise SettingsError(f"{err.filename or folder}: {err.strerror}") from err
    until = f"{read_claims(given.chain_pem).not_after:%Y-%m-%d %H:%M:%S} UTC"
    print(f"{identity}, valid until {until}: {certificate}, {private}, {roots}")
    return ExitCode.OK


def _state(view: CertificateView, now: datetime) -> str:
    if view.revoked_at is not None:
        return "revoked"
    return "expired" if now >= view.expires_at else "valid"
