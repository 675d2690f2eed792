"""`persysctl token`: join tokens, which the CA issues, and user tokens, which the scheduler issues."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec import Struct, to_builtins

from persys.cli.connect.clients import ca_client, scheduler_client
from persys.cli.connect.settings import context_settings, duration
from persys.cli.framework.exit_codes import ExitCode, UsageError, exit_code_of
from persys.cli.framework.output import code_text, dump, render_rows, to_dict
from persys.errors import PersysError
from persys.infra.clock import SystemClock
from persys.wire.ca.messages import TokenRequest, TokenView
from persys.wire.gen.control.v1 import control_pb2 as pb

JOIN, PERSON = "join", "person"
_USER_ROLES = ("admin", "operator", "viewer")
_LIMIT = 100


class Row(Struct):
    id: str
    kind: str  # join, person
    role: str
    name: str
    state: str  # unused, used, valid, expired
    created_at: datetime
    expires_at: datetime
    created_by: str
    deeds: tuple[str, ...] = ()
    prefix: str = ""
    hosts: tuple[str, ...] = ()
    used_at: datetime | None = None
    serial: str = ""


def create(options: Namespace) -> ExitCode:
    """Print only the token on standard output, for scripts; how to use it goes to standard error."""
    if options.role in _USER_ROLES:
        return _create_user_token(options)
    return _create_join_token(options)


def _create_user_token(options: Namespace) -> ExitCode:
    if options.host:
        raise UsageError(f"--host needs a role that joins; {options.role} is a role of users")
    ttl = duration(options.ttl, "--ttl") if options.ttl else None
    deeds = [word for part in options.allow for word in part.split(",") if word]
    with scheduler_client(options) as client:
        made = client.create_token(
            options.name, options.role, deeds=deeds, ttl=ttl, prefix=options.prefix
        )
    if options.output in ("json", "yaml"):
        print(dump({**to_dict(made.token), "secret": made.secret}, options.output))
        return ExitCode.OK
    print(made.secret)
    token = made.token
    until = f"{_utc(token.expires_at.ToDatetime()):%Y-%m-%d %H:%M:%S} UTC"
    print(
        f"shown only once; valid until {until} for {token.role}/{token.name} with the permissions "
        f"{_permissions(token.deeds)}{_limit(token.prefix)}. Set PERSYS_TOKEN, or token_file of a context. "
        f"Revoke it with `persysctl token revoke {token.token_id}`",
        file=sys.stderr,
    )
    return ExitCode.OK


def _create_join_token(options: Namespace) -> ExitCode:
    if options.allow:
        raise UsageError(
            f"--allow needs a role of users; the permissions of {options.role} are fixed"
        )
    if options.prefix:
        raise UsageError(f"--prefix needs a role of users; {options.role} is not one")
    ttl = duration(options.ttl, "--ttl").total_seconds() if options.ttl else None
    with ca_client(options) as client:
        made = client.create_token(
            TokenRequest(options.role, options.name, tuple(options.host), ttl)
        )
    if options.output in ("json", "yaml"):
        print(dump(to_builtins(made), options.output))
        return ExitCode.OK
    print(made.token)
    until = f"{made.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    use = (
        "persys-agent join SCHEDULER TOKEN"
        if options.role == "agent"
        else "persysctl certificate join TOKEN --out DIRECTORY"
    )
    print(
        f"valid once, until {until}, for {options.role} {options.name}: {use}",
        file=sys.stderr,
    )
    return ExitCode.OK


def show(options: Namespace) -> ExitCode:
    """List both kinds, or the one of --kind. A server that does not respond sets the exit code."""
    rows: list[Row] = []
    worst = ExitCode.OK
    for kind, fetch in _sources(options):
        try:
            rows += fetch(options)
        except PersysError as err:
            if options.kind:
                raise
            print(f"error: tokens of kind {kind}: {err}", file=sys.stderr)
            worst = max(worst, exit_code_of(err))
    rows.sort(key=lambda row: row.created_at, reverse=True)
    print(
        render_rows(
            rows[: options.limit or _LIMIT],
            options,
            columns={
                "ID": lambda row: row.id,
                "KIND": lambda row: row.kind,
                "IDENTITY": lambda row: f"{row.role}/{row.name}",
                "STATE": lambda row: code_text(row.state),
                "EXPIRES": lambda row: f"{row.expires_at:%Y-%m-%d %H:%M}",
                "PERMISSIONS": lambda row: _permissions(row.deeds) or "-",
                "PREFIX": lambda row: row.prefix or "-",
                "BY": lambda row: row.created_by,
            },
            name=lambda row: row.id,
            empty="no tokens",
        )
    )
    return worst


def revoke(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.revoke_token(options.token_id)
    print(f"token {options.token_id} is revoked")
    return ExitCode.OK


def _sources(options: Namespace) -> Iterable[tuple[str, Callable[[Namespace], list[Row]]]]:
    if options.kind != JOIN:
        yield PERSON, _user_tokens
    if options.kind == JOIN or _has_authority(options):
        yield JOIN, _join_tokens
    elif not options.kind:
        print(
            "note: join tokens are not listed: set the address of the CA with --authority",
            file=sys.stderr,
        )


def _has_authority(options: Namespace) -> bool:
    value = options.authority or os.environ.get("PERSYS_CA_ADDR")
    return bool(value or context_settings(options).get("ca_endpoint"))


def _user_tokens(options: Namespace) -> list[Row]:
    with scheduler_client(options) as client:
        found = client.list_tokens()
    now = SystemClock().now()
    return [_user_row(token, now) for token in found]


def _join_tokens(options: Namespace) -> list[Row]:
    with ca_client(options) as client:
        found = client.tokens(options.limit or _LIMIT)
    now = SystemClock().now()
    return [_join_row(token, now) for token in found]


def _user_row(token: pb.TokenView, now: datetime) -> Row:
    expires_at = _utc(token.expires_at.ToDatetime())
    return Row(
        id=token.token_id,
        kind=PERSON,
        role=token.role,
        name=token.name,
        state="expired" if now >= expires_at else "valid",
        created_at=_utc(token.created_at.ToDatetime()),
        expires_at=expires_at,
        created_by=token.created_by,
        deeds=tuple(token.deeds),
        prefix=token.prefix,
    )


def _join_row(token: TokenView, now: datetime) -> Row:
    return Row(
        id=token.id,
        kind=JOIN,
        role=token.role,
        name=token.name,
        state=_state(token, now),
        created_at=token.created_at,
        expires_at=token.expires_at,
        created_by=token.created_by,
        hosts=token.hosts,
        used_at=token.used_at,
        serial=token.serial,
    )


def _state(token: TokenView, now: datetime) -> str:
    if token.used_at is not None:
        return "used"
    return "expired" if now >= token.expires_at else "unused"


def _permissions(deeds: Iterable[str]) -> str:
    """The permissions, without `anyone`, which every identity has."""
    return ", ".join(deed for deed in deeds if deed != "anyone")


def _limit(prefix: str) -> str:
    return f", for workloads and secrets with the prefix {prefix}" if prefix else ""


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)
