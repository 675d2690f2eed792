"""Commands of persys-ca on the CA host, which use the keys directly: issue the first certificates.

Access to the key files is sufficient authorization. The CA may run at the same time.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from persys.ca.app import addresses, open_authority
from persys.ca.authority import Authority
from persys.ca.settings import CaSettings
from persys.core.duration import parse_duration
from persys.errors import SettingsError
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.clock import SystemClock
from persys.infra.command_line import StrictParser
from persys.infra.settings import load
from persys.infra.tls.keys import key_pem, new_key, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.messages import CertificateRequest, TokenRequest

COMMANDS = {
    "certificate": "issue a key and a certificate, as files",
    "token": "print a token that is valid for one join",
}
_ASKED_BY = "the CA host"


def run_command(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command and return its output. `argv` begins with the command."""
    options, rest = new_parser().parse_known_args(argv)
    settings = load(CaSettings, rest, environ, program="persys-ca").settings
    authority = open_authority(
        settings,
        SystemClock(),
        lambda: addresses(settings.advertise, settings.listen, settings.port),
    )
    try:
        if options.command == "token":
            return _token(authority, options)
        return _certificate(authority, options)
    finally:
        authority.database.close()


def is_revoked(serial: str, environ: Mapping[str, str]) -> bool:
    """Whether a certificate is revoked, on the CA host."""
    settings = load(CaSettings, [], environ, program="persys-ca").settings
    authority = open_authority(settings, SystemClock(), tuple)
    try:
        return authority.is_revoked(serial)
    finally:
        authority.database.close()


def _token(authority: Authority, options: Namespace) -> str:
    request = TokenRequest(options.role, options.name, tuple(options.host), _seconds(options.ttl))
    return authority.create_token(_ASKED_BY, request).token


def _certificate(authority: Authority, options: Namespace) -> str:
    key = new_key()
    identity = Identity(Role(options.role), options.name)
    request = CertificateRequest(
        options.role,
        options.name,
        new_request(key, identity, options.host).decode(),
        _seconds(options.ttl),
    )
    issued = authority.create(_ASKED_BY, request)
    folder = Path(options.out)
    certificate = folder / f"{options.role}.crt"
    try:
        write_files(
            [
                (folder / "ca.crt", issued.roots.encode(), PUBLIC),
                (certificate, issued.certificate.encode(), PUBLIC),
                (folder / f"{options.role}.key", key_pem(key), PRIVATE),
            ]
        )
    except OSError as err:
        raise SettingsError(f"{err.filename or folder}: {err.strerror}") from err
    return f"{certificate}: {identity} until {issued.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def new_parser() -> ArgumentParser:
    """One parser per command, so that each has a help page of its own."""
    parser = StrictParser(prog="persys-ca")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(
            name, help=text, description=f"{text}. Takes the flags of persys-ca too."
        )
        _add_identity(command)
        if name == "certificate":
            command.add_argument(
                "--out",
                default=".",
                metavar="DIR",
                help="directory for ROLE.crt, ROLE.key and ca.crt (default: %(default)s)",
            )
    return parser


def _add_identity(command: ArgumentParser) -> None:
    command.add_argument(
        "--role",
        required=True,
        choices=[role.value for role in Role if role is not Role.CA],
        help="role of the holder, which sets its permissions",
    )
    command.add_argument(
        "--name", "--node", required=True, help="name of the holder; for an agent, its node id"
    )
    command.add_argument(
        "--host",
        action="append",
        default=[],
        help="DNS name or IP address in the certificate; may be repeated",
    )
    command.add_argument(
        "--ttl",
        type=_duration,
        default=None,
        metavar="DURATION",
        help="validity, for example 12h (default: as configured in persys-ca)",
    )


def _duration(text: str) -> timedelta:
    """An argument type, so that an invalid value is a usage error with its reason."""
    try:
        return parse_duration(text)
    except ValueError as err:
        raise ArgumentTypeError(str(err)) from err


def _seconds(go_duration: timedelta | None) -> float | None:
    return None if go_duration is None else go_duration.total_seconds()
