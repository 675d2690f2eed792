"""Checks the client certificate: it exists, is complete, is valid and has the role of a user."""

import os
from argparse import Namespace
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.connect.settings import Settings, Transport
from persys.cli.connect.tls import client_tls
from persys.cli.doctor.finding import Finding, fail, ok, warn
from persys.errors import SettingsError
from persys.model.role import Role

if TYPE_CHECKING:
    from persys.infra.tls.identity import Claims

CHECK = "certificate"
EXPIRES_SOON = timedelta(hours=2)
GET_CERTIFICATE = (
    "`persysctl certificate create --role admin --name YOU`, run by a user with a valid one, or "
    "`persys-ca certificate --role admin --name YOU` on the host of the CA"
)
_USER_ROLES = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})
_OTHERS_MASK = 0o077


def check_certificate(options: Namespace, settings: Settings, now: datetime) -> Iterator[Finding]:
    if settings.transport is Transport.HTTP and (
        settings.gateway.startswith("http://") or settings.token
    ):
        yield ok(CHECK, "not required: a token is used, or the gateway runs with -insecure")
        return
    try:
        trust = client_tls(options, os.environ, settings.file)
    except SettingsError as err:
        yield fail(CHECK, str(err).partition("\n")[0], GET_CERTIFICATE)
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
