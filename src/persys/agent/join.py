"""`persys-agent join`: exchanges a join token for a certificate, and writes key, certificate and settings.

A token is valid only once, so it is used last, after all local checks. If this node has already joined with
the same token, the command succeeds and reports that.
"""

import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from persys.agent.settings import DEFAULT_CONFIG_FILE, AgentSettings
from persys.client.ca.client import join
from persys.core.auth.enrolment import JoinTokenFault
from persys.core.bounded_yaml import dump, load_mapping
from persys.errors import DeniedError, InvalidError, SettingsError
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.clock import SystemClock
from persys.infra.command_line import StrictParser
from persys.infra.net.address import is_service
from persys.infra.settings import load
from persys.infra.tls.certificates import CertificateFiles, KeyPair, read_key_pair
from persys.infra.tls.identity import read_claims
from persys.infra.tls.keys import fingerprints, key_pem, new_key, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.join_token import JoinToken, read_token

_STDIN = "-"


class _Place(Struct, frozen=True):
    files: CertificateFiles
    config: Path
    existing: Mapping[str, object]  # the settings that the file already has


def join_cluster(argv: Sequence[str], environ: Mapping[str, str], given: str = "") -> list[str]:
    """Returns the lines to print. `given` is the token from standard input.

    Raises InvalidError or SettingsError for local errors, DeniedError if the CA refuses.
    """
    options, rest = _parser().parse_known_args(argv)
    config = Path(options.config)
    if config.exists():
        rest = [*rest, "--config", options.config]
    settings = load(AgentSettings, rest, environ, program="persys-agent join").settings
    scheduler = _schedulers(options.scheduler)
    token = _token(given if options.token == _STDIN else options.token, settings)
    files = settings.files
    place = _Place(files, config, _read_config(config))
    _check_writable([files.certificate, files.key, files.roots, config])
    identity = Identity(Role.AGENT, token.name)
    lines = _joined(token, identity, place, _facts(settings, scheduler, token), options.host)
    return [*lines, *_notes(environ, scheduler)]


def _joined(
    token: JoinToken,
    identity: Identity,
    place: _Place,
    facts: Mapping[str, object],
    hosts: Sequence[str],
) -> list[str]:
    config = dump({**place.existing, **facts}).encode()
    key = new_key()
    try:
        issued = join(token, new_request(key, identity, hosts))
    except DeniedError as err:
        has = _pair(place.files)
        if err.reason != JoinTokenFault.USED or has is None or not _is_of(has, identity, token.fp):
            raise
        write_files([(place.config, config, PUBLIC)])
        until = f"{has.claims.not_after:%Y-%m-%d %H:%M:%S} UTC"
        return [f"node {token.name} has already joined; its certificate is valid until {until}"]
    write_files(
        [
            (place.config, config, PUBLIC),
            (place.files.roots, issued.roots_pem, PUBLIC),
            (place.files.key, key_pem(key), PRIVATE),
            (place.files.certificate, issued.chain_pem, PUBLIC),
        ]
    )
    until = f"{read_claims(issued.chain_pem).not_after:%Y-%m-%d %H:%M:%S} UTC"
    start = (
        "persys-agent"
        if place.config == DEFAULT_CONFIG_FILE
        else f"persys-agent --config {place.config}"
    )
    return [
        f"node {token.name} has joined; its certificate is valid until {until} and is renewed automatically",
        f"settings are in {place.config}; start the agent with: {start}",
    ]


def _token(text: str, settings: AgentSettings) -> JoinToken:
    token = read_token(text)
    if token.role != Role.AGENT:
        raise InvalidError("token", f"invalid role '{token.role}': expected a token for an agent")
    if settings.node_id and settings.node_id != token.name:
        raise InvalidError(
            "token", f"is for node {token.name}: expected {settings.node_id} (PERSYS_NODE_ID)"
        )
    return token


def _schedulers(text: str) -> list[str]:
    words = [word for part in text.split(",") if (word := part.strip())]
    for word in words or [text]:
        host, _, port = word.rpartition(":")
        if not is_service(word) and not (host and port.isdecimal()):
            raise InvalidError(
                "scheduler",
                f"invalid address {word!r}: expected host:port, for example scheduler:8085",
            )
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
    configured = environ.get("PERSYS_SCHEDULER_ADDR", "")
    if configured and configured != ",".join(schedulers):
        return [f"note: PERSYS_SCHEDULER_ADDR={configured} is set and overrides the file"]
    return []


def _read_config(config: Path) -> Mapping[str, object]:
    # The settings were loaded from this file before, so it is a mapping with known keys.
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
            raise SettingsError(f"{path.parent}: not writable; the token was not used")


def _parser() -> ArgumentParser:
    parser = StrictParser(
        prog="persys-agent join",
        description="Obtain the certificate of this node. Also accepts the flags of persys-agent.",
    )
    parser.add_argument("scheduler", help="host:port, a comma-separated list, or an SRV name")
    parser.add_argument(
        "token", help="join token from `persysctl token create`; - reads it from standard input"
    )
    parser.add_argument(
        "--config", default=str(DEFAULT_CONFIG_FILE), help="file to write the settings to"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        help="host name or IP address to include in the certificate; repeatable",
    )
    return parser
