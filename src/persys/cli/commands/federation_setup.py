"""Checks and files of `persysctl federation add`, and what `remove` leaves to do.

All checks come before the first change: the remote cluster, its token, this cluster, the directory. Then the
certificate of the node is issued, and the environment file of persys-federation is written last.
"""

import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from persys.cli.connect.clients import ca_client, remote_client, scheduler_client
from persys.cli.connect.settings import Transport, load_settings
from persys.cli.connect.tls import client_tls
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.output import dump
from persys.client import SchedulerClient
from persys.client.ca.client import join
from persys.core.federation.cluster_ids import check_prefix, prefix_of, problem_of
from persys.errors import DeniedError, NotFoundError, RefusedError, SettingsError
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.tls.keys import key_pem, new_key, new_request
from persys.model.identity import Identity, Permission, Role
from persys.model.ids import node_id
from persys.wire.ca.join_token import read_token
from persys.wire.ca.messages import TokenRequest
from persys.wire.gen.control.v1.control_pb2 import ModeView

DIRECTORY = Path("/etc/persys/federation")
STATE = Path("/var/lib/persys/federation")
TIER_MAX, PERCENT_MAX = 100, 100
_GRPC_PORT, _METRICS_PORT = 50052, 8090
_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]*", re.ASCII)
_NEEDED = (Permission.READ, Permission.WORKLOADS)
_USEFUL = (Permission.LOGS, Permission.EXEC, Permission.SECRETS)

Files = list[tuple[Path, bytes, int]]


class Place(NamedTuple):
    """Where the files of one federation are."""

    name: str
    directory: Path

    @property
    def environment(self) -> Path:
        return self.directory / f"{self.name}.env"

    @property
    def secrets(self) -> Path:
        """The directory of the token, the key and the certificates."""
        return self.directory / self.name

    @property
    def token(self) -> Path:
        return self.secrets / "token"

    @property
    def remote_ca(self) -> Path:
        return self.secrets / "remote-ca.crt"

    @property
    def state(self) -> Path:
        parent = STATE if self.directory == DIRECTORY else self.directory / "state"
        return parent / self.name / "state.db"


class Home(NamedTuple):
    mode: ModeView
    schedulers: str
    plain: bool  # it runs with -insecure


def set_up(options: Namespace) -> ExitCode:
    place = _place(options)
    _check_options(options)
    if place.environment.exists():
        raise RefusedError(
            f"{place.environment} exists: remove the federation with "
            f"`persysctl federation remove {place.name}`, or use another name"
        )
    token = _read(options.token_file, "--token-file").decode(errors="replace").strip()
    roots = _read(options.remote_ca, "--remote-ca")
    home = _check_home(options, place.name)
    checked = [_check_remote(options, address, home.mode, token) for address in _addresses(options)]
    if len({mode.cluster_uid for mode, _ in checked}) > 1:
        raise RefusedError(f"--remote {options.remote}: the addresses are of different clusters")
    variables, files = _settings(options, place, home), _given_files(place, token, roots)
    _make_directory(place)
    if not home.plain:
        issued, addresses = _issue(options, place)
        variables |= addresses
        files += issued
    _write(place, [*files, (place.environment, _environment_file(variables), PRIVATE)])
    start = _how_to_start(place, plain=home.plain)
    if options.output in ("json", "yaml"):
        shown = {"name": place.name, "environment_file": str(place.environment), "start": start}
        print(dump(shown, options.output))
    else:
        print("\n".join(text for _, text in checked))
        print(f"settings are in {place.environment}\nstart it with: {start}")
    return ExitCode.OK


def remaining_steps(options: Namespace) -> list[str]:
    """Delete the files of a removed federation; returns what else is to be done."""
    place = _place(options)
    if not place.environment.exists():
        files = f"{place.environment} and {place.secrets}"
        return [
            f"on the machine of persys-federation stop the process and delete {files}",
            "on the remote cluster revoke its token: persysctl token revoke ID",
        ]
    command = (
        f": systemctl disable --now persys-federation@{place.name}" if _has_unit(place) else ""
    )
    stop = f"stop the process persys-federation{command}"
    state = f"then delete its journal in {place.state.parent}"
    revoke = ""
    with suppress(OSError, IndexError):
        token_id = place.token.read_text().split("_")[1]
        revoke = f"on the remote cluster revoke its token: persysctl token revoke {token_id}"
    place.environment.unlink()
    shutil.rmtree(place.secrets, ignore_errors=True)
    deleted = f"deleted {place.environment} and {place.secrets}"
    return [line for line in (deleted, stop, state, revoke) if line]


def _place(options: Namespace) -> Place:
    return Place(
        node_id(options.name, field="name"), Path(options.directory).expanduser().absolute()
    )


def _check_options(options: Namespace) -> None:
    if not 1 <= options.tier <= TIER_MAX:
        raise UsageError(
            f"invalid --tier '{options.tier}': expected 1 to {TIER_MAX}, for example 1"
        )
    if not 1 <= options.share <= PERCENT_MAX:
        raise UsageError(
            f"invalid --share '{options.share}': expected 1 to {PERCENT_MAX}, for example 90"
        )
    for name, value in (
        ("--price", options.price),
        ("--cores-max", options.cores_max),
        ("--spend-max", options.spend_max),
    ):
        if not 0 <= value < float("inf"):
            raise UsageError(f"invalid {name} '{value}': expected 0 or more, for example 2")
    if options.spend_max and not options.price:
        raise UsageError("--spend-max needs --price, the price per core and hour")


def _read(named: str, option: str) -> bytes:
    if not named:
        return b""
    try:
        return Path(named).expanduser().read_bytes()
    except OSError as err:
        raise SettingsError(f"{option} {named}: {err.strerror}") from err


def _check_home(options: Namespace, name: str) -> Home:
    settings = load_settings(options)
    with scheduler_client(options) as client:
        mode = client.get_mode()
        if not mode.cluster_id:
            raise RefusedError(
                f"the scheduler of this cluster has version {mode.version or 'unknown'}, which does "
                "not support federation: upgrade it"
            )
        if problem := problem_of(mode.cluster_id):
            raise RefusedError(
                f"invalid cluster id '{mode.cluster_id}' of this cluster: {problem} "
                "(PERSYS_CLUSTER_ID of the schedulers)"
            )
        check_prefix(prefix_of(mode.cluster_id), "cluster id")
        _check_absent(client, name)
    if settings.transport is Transport.HTTP:
        return Home(mode, mode.leader_endpoint, settings.gateway.startswith("http://"))
    plain = client_tls(options, os.environ, settings.file) is None
    return Home(mode, settings.scheduler, plain)


def _check_absent(client: SchedulerClient, name: str) -> None:
    with suppress(NotFoundError):
        node = client.get_node(name)
        kind = "a federated node" if node.remote else "a node"
        raise RefusedError(f"{name} is already {kind} of this cluster: use another name")


def _addresses(options: Namespace) -> list[str]:
    found = [address for part in options.remote.split(",") if (address := part.strip())]
    if not found:
        raise UsageError(f"invalid --remote '{options.remote}': expected https://gateway:8551")
    return found


def _check_remote(
    options: Namespace, address: str, home: ModeView, token: str
) -> tuple[ModeView, str]:
    """What the remote cluster is, with a line to print. Raises RefusedError if it cannot be used."""
    prefix = prefix_of(home.cluster_id)
    create = f"`persysctl token create --role operator --name {home.cluster_id} --prefix {prefix}`"
    with remote_client(options, address, token) as client:
        mode = client.get_mode()
        try:
            identity = client.get_identity()
        except DeniedError as err:
            raise DeniedError(f"{err}; create a token on the remote cluster with {create}") from err
    if not mode.cluster_id:
        raise RefusedError(
            f"the remote cluster has version {mode.version or 'unknown'}, which does not support "
            "federation: upgrade its schedulers"
        )
    if mode.cluster_uid and mode.cluster_uid == home.cluster_uid:
        raise RefusedError(f"{address} is this cluster itself: expected another cluster")
    if mode.mode != "normal":
        raise RefusedError(
            f"the remote cluster is in {mode.mode} mode: {mode.reason}; "
            "see `persysctl recovery status` there"
        )
    if identity.role:
        if identity.prefix != prefix:
            has = f"the prefix '{identity.prefix}'" if identity.prefix else "no prefix"
            raise RefusedError(
                f"the token has {has}: expected '{prefix}', because this cluster is "
                f"{home.cluster_id}. Create a token on the remote cluster with {create}"
            )
        _check_permissions(identity.deeds, create)
    versions = "" if mode.version == home.version else f", version {mode.version}"
    limited = f"the token acts on {prefix}*" if identity.role else "it runs with -insecure"
    return mode, f"remote cluster {mode.cluster_id} at {address}{versions}: {limited}"


def _check_permissions(has: Collection[str], create: str) -> None:
    if missing := [each for each in _NEEDED if each not in has]:
        raise RefusedError(
            f"the token has no permission {', '.join(missing)}. Create a token on the remote "
            f"cluster with {create}"
        )
    if missing := [each for each in _USEFUL if each not in has]:
        print(
            f"note: the token has no permission {', '.join(missing)}: that does not work for "
            "offloaded workloads",
            file=sys.stderr,
        )


def _settings(options: Namespace, place: Place, home: Home) -> dict[str, object]:
    number = _first_free(place.directory)
    variables: dict[str, object] = {
        "PERSYS_NODE_ID": place.name,
        "PERSYS_CLUSTER_ID": home.mode.cluster_id,
        "PERSYS_SCHEDULER_ADDR": home.schedulers,
        "PERSYS_FEDERATION_REMOTE": ",".join(_addresses(options)),
        "PERSYS_FEDERATION_SHARE_PERCENT": options.share,
        "PERSYS_FEDERATION_CORES_MAX": options.cores_max,
        "PERSYS_FEDERATION_SPEND_PER_HOUR_MAX": f"{options.spend_max:g}",
        "PERSYS_NODE_TIER": options.tier,
        "PERSYS_NODE_PRICE": f"{options.price:g}",
        "PERSYS_GRPC_PORT": _GRPC_PORT + number,
        "PERSYS_METRICS_PORT": _METRICS_PORT + number,
        "PERSYS_STATE_PATH": place.state,
    }
    if options.remote_cluster:
        variables["PERSYS_FEDERATION_REMOTE_CLUSTER"] = options.remote_cluster
    if options.token_file:
        variables["PERSYS_FEDERATION_TOKEN_FILE"] = place.token
    if options.remote_ca:
        variables["PERSYS_FEDERATION_REMOTE_CA"] = place.remote_ca
    for name, value in variables.items():
        if not _PLAIN.fullmatch(str(value)):
            raise UsageError(
                f"invalid {name} '{value}': expected letters, digits and @%+=:,./[]_-, because shells, "
                "systemd and Docker read the environment file"
            )
    return variables


def _first_free(directory: Path) -> int:
    """The number of the first pair of ports that no other federation of this directory uses."""
    used = "".join(each.read_text(errors="replace") for each in directory.glob("*.env"))
    number = 0
    while (
        f"PERSYS_GRPC_PORT={_GRPC_PORT + number}\n" in used
        or f"PERSYS_METRICS_PORT={_METRICS_PORT + number}\n" in used
    ):
        number += 1
    return number


def _given_files(place: Place, token: str, roots: bytes) -> Files:
    """Copies, because the process runs as another user."""
    files: Files = []
    if token:
        files.append((place.token, f"{token}\n".encode(), PRIVATE))
    if roots:
        files.append((place.remote_ca, roots, PUBLIC))
    return files


def _issue(options: Namespace, place: Place) -> tuple[Files, Mapping[str, object]]:
    """Create a join token and use it: the key is created here and never leaves this machine."""
    with ca_client(options) as client:
        token = read_token(client.create_token(TokenRequest(Role.AGENT, place.name)).token)
    key = new_key()
    request = new_request(key, Identity(Role.AGENT, place.name), ())
    issued = join(token, request, timeout=load_settings(options).request_timeout)
    roots, private, certificate = (
        place.secrets / name for name in ("ca.crt", "agent.key", "agent.crt")
    )
    files: Files = [
        (roots, issued.roots_pem, PUBLIC),
        (private, key_pem(key), PRIVATE),
        (certificate, issued.chain_pem, PUBLIC),
    ]
    return files, {
        "PERSYS_CA_ADDR": ",".join(token.ca),
        "PERSYS_TLS_CA": roots,
        "PERSYS_TLS_CERT": certificate,
        "PERSYS_TLS_KEY": private,
    }


def _environment_file(variables: Mapping[str, object]) -> bytes:
    lines = [f"{name}={value}" for name, value in variables.items()]
    head = "# Variables of persys-federation; docs/reference/settings.md lists all of them."
    return "\n".join([head, *lines, ""]).encode()


def _make_directory(place: Place) -> None:
    try:
        place.secrets.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise SettingsError(
            f"{place.secrets}: {err.strerror}; run as root, or set --directory"
        ) from err


def _write(place: Place, files: Files) -> None:
    """All files get the owner of the directory, which is the user of the unit."""
    try:
        write_files(files)
        owner = place.directory.stat()
        if os.geteuid() == 0:
            for path in (place.secrets, *(path for path, _, _ in files)):
                os.chown(path, owner.st_uid, owner.st_gid)
    except OSError as err:
        raise SettingsError(f"{err.filename or place.directory}: {err.strerror}") from err


def _how_to_start(place: Place, *, plain: bool) -> str:
    if _has_unit(place) and not plain:
        return f"systemctl enable --now persys-federation@{place.name}"
    flag = " -insecure" if plain else ""
    return f"(set -a; . {place.environment}; exec persys-federation{flag})"


def _has_unit(place: Place) -> bool:
    return place.directory == DIRECTORY and Path("/run/systemd/system").is_dir()
