"""Diagnoses a failed TLS connection. Used only after a call has failed.

gRPC reports only that there was no connection, so this repeats the handshake and explains the failure by the
kind of the error.
"""

import socket
import ssl
from contextlib import suppress

from persys.client.grpc.channel import HOSTNAME_MISMATCH, THIRD_PARTY_HINT, Trust
from persys.errors import SettingsError
from persys.model.role import Role

SECONDS = 3.0
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def explain_tls_failure(target: str, role: Role, trust: Trust | None) -> str:
    """The cause, or "" if it is not TLS. Raises SettingsError if the client's own files are invalid."""
    if trust is not None:
        _check_client_certificate(trust)
    host, _, port = target.rpartition("/")[2].removeprefix("ipv4:").split(",")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as connection:
            connection.settimeout(SECONDS)
            return _handshake(connection, host, role, trust)
    except (OSError, ValueError):
        return ""  # no connection, as the call has already reported


def _check_client_certificate(trust: Trust) -> None:
    from persys.infra.clock import SystemClock
    from persys.infra.tls.certificates import read_key_pair  # slow to import

    now = SystemClock().now()
    claims = read_key_pair(trust.files, now).claims
    if now < claims.not_before:
        raise SettingsError(
            f"{trust.files.certificate}: not valid before {claims.not_before:%Y-%m-%d %H:%M:%S} UTC; "
            "check the clock of this machine"
        )


def _handshake(connection: socket.socket, host: str, role: Role, trust: Trust | None) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if trust is None:
        return _detect_tls(connection, context)
    context.load_verify_locations(trust.files.roots)
    context.load_cert_chain(trust.files.certificate, trust.files.key)
    expected = trust.name_of(role) or host.strip("[]")
    try:
        with context.wrap_socket(connection, server_hostname=expected) as secure:
            secure.sendall(_HTTP2_PREFACE)
            if secure.recv(1):
                return ""
    except ssl.SSLCertVerificationError as err:
        text = f"the server has no {role} certificate that is signed by {trust.files.roots} "
        text += f"({err.verify_message}); "
        if err.verify_code == HOSTNAME_MISMATCH and not trust.by_host:
            return f"{text}wrong address? {THIRD_PARTY_HINT}"
        return f"{text}wrong cluster, or was the CA recreated?"
    except ssl.SSLError as err:
        if err.reason == "WRONG_VERSION_NUMBER":
            return "the server does not use TLS: it runs with -insecure; connect with --insecure"
        return _refused(trust)
    except ConnectionError:
        return _refused(trust)
    return _refused(trust)


def _refused(trust: Trust) -> str:
    return (
        f"the server rejected {trust.files.certificate}: it is signed by a CA that the server does not "
        "trust, or was revoked; create a new one with `persysctl certificate create`, or use another "
        "with --cert"
    )


def _detect_tls(connection: socket.socket, context: ssl.SSLContext) -> str:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(ssl.SSLError, OSError), context.wrap_socket(connection):
        return (
            "the server requires TLS: remove --insecure (PERSYS_INSECURE, grpc_insecure) and use a "
            "client certificate"
        )
    return ""
