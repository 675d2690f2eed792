"""`persys-agent join`: a token becomes a key, a certificate, the roots, and a file with what else is needed.

The token is used last, after everything that could fail on this machine: it is good only once. What would
surprise: a node that has joined with this very token already is told so, and not that the token is used.
"""

import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from persys.agent.settings import USUAL_FILE, AgentSettings
from persys.client.authority import join
from persys.core.bounded_yaml import dump, load_mapping
from persys.core.enrolment import Fault
from persys.errors import DeniedError, InvalidError, SettingsError
from persys.infra.address import is_service
from persys.infra.certificates import CertificateFiles, KeyPair, read_key_pair
from persys.infra.clock import SystemClock
from persys.infra.command_line import StrictParser
from persys.infra.files import PRIVATE, PUBLIC, write_together
from persys.infra.identity import read_claims
from persys.infra.keys import fingerprints, key_pem, new_key, new_request
from persys.infra.settings import load
from persys.model.identity import Identity, Role
from persys.wire.join import JoinToken, read_token

_STDIN = "-"


class _Place(Struct, frozen=True):
    files: CertificateFiles
    config: Path
    said: Mapping[str, object]  # what the file says already


def join_cluster(argv: Sequence[str], environ: Mapping[str, str], given: str = "") -> list[str]:
    """Returns what is to be told. `given` is the token where the command line says -.

    Raises InvalidError or SettingsError for what is wrong here, DeniedError for what the authority refuses.
    """
    options, rest = _parser().parse_known_args(argv)
    config = Path(options.config)
    if config.exists():
        rest = [*rest, "--config", options.config]
    settings = load(AgentSettings, rest, environ, program="persys-agent join").settings
    scheduler = _schedulers(options.scheduler)
    token = _token(given if options.token == _STDIN else options.token, settings)
    files = settings.files
    place = _Place(files, config, _said(config))
    _check_writable([files.certificate, files.key, files.roots, config])
    identity = Identity(Role.AGENT, token.name)
    told = _joined(token, identity, place, _facts(settings, scheduler, token), options.host)
    return [*told, *_notes(environ, scheduler)]


def _joined(
    token: JoinToken,
    identity: Identity,
    place: _Place,
    facts: Mapping[str, object],
    hosts: Sequence[str],
) -> list[str]:
    config = dump({**place.said, **facts}).encode()
    key = new_key()
    try:
        issued = join(token, new_request(key, identity, hosts))
    except DeniedError as err:
        has = _pair(place.files)
        if err.reason != Fault.USED or has is None or not _is_of(has, identity, token.fp):
            raise
        write_together([(place.config, config, PUBLIC)])
        until = f"{has.claims.not_after:%Y-%m-%d %H:%M:%S} UTC"
        return [f"node {token.name} has joined already; its certificate is valid until {until}"]
    write_together(
        [
            (place.config, config, PUBLIC),
            (place.files.roots, issued.roots_pem, PUBLIC),
            (place.files.key, key_pem(key), PRIVATE),
            (place.files.certificate, issued.chain_pem, PUBLIC),
        ]
    )
    until = f"{read_claims(issued.chain_pem).not_after:%Y-%m-%d %H:%M:%S} UTC"
    start = (
        "persys-agent" if place.config == USUAL_FILE else f"persys-agent --config {place.config}"
    )
    return [
        f"node {token.name} has joined; its certificate is valid until {until} and renews itself",
        f"settings are in {place.config}; start the agent with: {start}",
    ]


def _token(text: str, settings: AgentSettings) -> JoinToken:
    token = read_token(text)
    if token.role != Role.AGENT:
        raise InvalidError("token", f"is for a {token.role}, not for an agent")
    if settings.node_id and settings.node_id != token.name:
        raise InvalidError(
            "token", f"is for node {token.name}, but PERSYS_NODE_ID is {settings.node_id}"
        )
    return token


def _schedulers(text: str) -> list[str]:
    words = [word for part in text.split(",") if (word := part.strip())]
    for word in words or [text]:
        host, _, port = word.rpartition(":")
        if not is_service(word) and not (host and port.isdecimal()):
            raise InvalidError("scheduler", f"{word!r} is no address; expected host:port")
    return words


def _facts(
    settings: AgentSettings, schedulers: Sequence[str], token: JoinToken
) -> Mapping[str, object]:
    usual = AgentSettings()
    paths = {
        name: str(getattr(settings, name))
        for name in ("tls_ca", "tls_cert", "tls_key")
        if getattr(settings, name) != getattr(usual, name)
    }
    return {"scheduler_addr": list(schedulers), "ca_addr": list(token.ca), **paths}


def _notes(environ: Mapping[str, str], schedulers: Sequence[str]) -> list[str]:
    said = environ.get("PERSYS_SCHEDULER_ADDR", "")
    if said and said != ",".join(schedulers):
        return [f"note: PERSYS_SCHEDULER_ADDR={said} is set, and beats the file"]
    return []


def _said(config: Path) -> Mapping[str, object]:
    # It was read as settings before, so it is a mapping of known keys.
    return load_mapping(config.read_text("utf-8")) if config.exists() else {}


def _pair(files: CertificateFiles) -> KeyPair | None:
    try:
        return read_key_pair(files, SystemClock().now())
    except SettingsError:
        return None


def _is_of(pair: KeyPair, identity: Identity, root_fingerprint: str) -> bool:
    return pair.claims.identity == identity and root_fingerprint in fingerprints(pair.roots)


def _check_writable(paths: Sequence[Path]) -> None:
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise SettingsError(f"{path.parent}: {err.strerror}") from err
        if not os.access(path.parent, os.W_OK):
            raise SettingsError(f"{path.parent}: cannot be written; the token was not used")


def _parser() -> ArgumentParser:
    parser = StrictParser(
        prog="persys-agent join",
        description="Give this node its certificate. Takes the flags of persys-agent too.",
    )
    parser.add_argument("scheduler", help="host:port, several with commas between, or an SRV name")
    parser.add_argument("token", help="as `persysctl token create` shows it; -: standard input")
    parser.add_argument("--config", default=str(USUAL_FILE), help="where the settings are written")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        help="name or address for the certificate; repeatable",
    )
    return parser
