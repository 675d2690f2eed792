"""Why somebody who listens does not talk to us: asked only after a call found nobody.

gRPC says no more than that there was no connection, so the handshake is done once more by hand, and what
fails is told by the kind of the failure.
"""

import socket
import ssl
from contextlib import suppress

from persys.client.call import Trust
from persys.errors import SettingsError
from persys.model.role import Role

SECONDS = 3.0
_BEGINNING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def explain(target: str, role: Role, trust: Trust | None) -> str:
    """Empty when it has nothing to do with TLS. Raises SettingsError when our own files are at fault."""
    if trust is not None:
        _check_own(trust)
    host, _, port = target.rpartition("/")[2].removeprefix("ipv4:").split(",")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as connection:
            connection.settimeout(SECONDS)
            return _shake(connection, host, role, trust)
    except (OSError, ValueError):
        return ""  # nobody is there, which is what was said


def _check_own(trust: Trust) -> None:
    from persys.infra.certificates import read_key_pair  # takes longer than most commands
    from persys.infra.clock import SystemClock

    now = SystemClock().now()
    claims = read_key_pair(trust.files, now).claims
    if now < claims.not_before:
        raise SettingsError(
            f"{trust.files.certificate}: is valid only from {claims.not_before:%Y-%m-%d %H:%M:%S} UTC; "
            "is the clock of this machine right?"
        )


def _shake(connection: socket.socket, host: str, role: Role, trust: Trust | None) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if trust is None:
        return _try_plain(connection, context)
    context.load_verify_locations(trust.files.roots)
    context.load_cert_chain(trust.files.certificate, trust.files.key)
    expected = trust.name_of(role) or host.strip("[]")
    try:
        with context.wrap_socket(connection, server_hostname=expected) as secure:
            secure.sendall(_BEGINNING)
            if secure.recv(1):
                return ""
    except ssl.SSLCertVerificationError as err:
        return (
            f"what answers there has no certificate for {role} from {trust.files.roots} "
            f"({err.verify_message}); is it another cluster's, or has its authority been replaced?"
        )
    except ssl.SSLError as err:
        if err.reason == "WRONG_VERSION_NUMBER":
            return "it does not speak TLS: it was started with -insecure; say --insecure too"
        return _refused(trust)
    except ConnectionError:
        return _refused(trust)
    return _refused(trust)


def _refused(trust: Trust) -> str:
    return (
        f"it does not take {trust.files.certificate}: that is of another authority than it believes, "
        "or was revoked; get a new one with `persysctl certificate create`, or name another with --cert"
    )


def _try_plain(connection: socket.socket, context: ssl.SSLContext) -> str:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(ssl.SSLError, OSError), context.wrap_socket(connection):
        return (
            "it speaks TLS, and was spoken to in plain text: leave out --insecure (PERSYS_INSECURE, "
            "grpc_insecure) and show a certificate"
        )
    return ""
