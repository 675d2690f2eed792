"""`persysctl token`: join tokens, which the CA issues, and user tokens, which the scheduler issues."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec import Struct, to_builtins

from persys.cli.connect.clients import authority, scheduler
from persys.cli.connect.settings import duration, read_file
from persys.cli.framework.exit_codes import Exit, UsageError, exit_of
from persys.cli.framework.output import dump, plain, render_rows
from persys.errors import PersysError
from persys.infra.clock import SystemClock
from persys.wire.ca.messages import TokenRequest, TokenView
from persys.wire.gen.control.v1 import control_pb2 as pb

JOIN, PERSON = "join", "person"
_PEOPLE = ("admin", "operator", "viewer")
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
    hosts: tuple[str, ...] = ()
    used_at: datetime | None = None
    serial: str = ""


def create(options: Namespace) -> Exit:
    """Print only the token on standard output, for scripts; how to use it goes to standard error."""
    if options.role in _PEOPLE:
        return _create_for_person(options)
    return _create_to_join(options)


def _create_for_person(options: Namespace) -> Exit:
    if options.host:
        raise UsageError(f"--host needs a role that joins; {options.role} is a role of users")
    ttl = duration(options.ttl, "--ttl") if options.ttl else None
    deeds = [word for part in options.allow for word in part.split(",") if word]
    with scheduler(options) as client:
        made = client.create_token(options.name, options.role, deeds=deeds, ttl=ttl)
    if options.output in ("json", "yaml"):
        print(dump({**plain(made.token), "secret": made.secret}, options.output))
        return Exit.OK
    print(made.secret)
    token = made.token
    until = f"{_instant(token.expires_at.ToDatetime()):%Y-%m-%d %H:%M:%S} UTC"
    print(
        f"shown only once; valid until {until} for {token.role}/{token.name} with the permissions "
        f"{_may(token.deeds)}. Set PERSYS_TOKEN, or token_file of a context. "
        f"Revoke it with `persysctl token revoke {token.token_id}`",
        file=sys.stderr,
    )
    return Exit.OK


def _create_to_join(options: Namespace) -> Exit:
    if options.allow:
        raise UsageError(
            f"--allow needs a role of users; the permissions of {options.role} are fixed"
        )
    ttl = duration(options.ttl, "--ttl").total_seconds() if options.ttl else None
    with authority(options) as client:
        made = client.invite(TokenRequest(options.role, options.name, tuple(options.host), ttl))
    if options.output in ("json", "yaml"):
        print(dump(to_builtins(made), options.output))
        return Exit.OK
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
    return Exit.OK


def show(options: Namespace) -> Exit:
    """List both kinds, or the one of --kind. A server that does not answer sets the exit code."""
    rows: list[Row] = []
    worst = Exit.OK
    for kind, fetch in _sources(options):
        try:
            rows += fetch(options)
        except PersysError as err:
            if options.kind:
                raise
            print(f"error: tokens of kind {kind}: {err}", file=sys.stderr)
            worst = max(worst, exit_of(err))
    rows.sort(key=lambda row: row.created_at, reverse=True)
    print(
        render_rows(
            rows[: options.limit or _LIMIT],
            options,
            columns={
                "ID": lambda row: row.id,
                "KIND": lambda row: row.kind,
                "IDENTITY": lambda row: f"{row.role}/{row.name}",
                "STATE": lambda row: row.state,
                "EXPIRES": lambda row: f"{row.expires_at:%Y-%m-%d %H:%M}",
                "PERMISSIONS": lambda row: _may(row.deeds) or "-",
                "BY": lambda row: row.created_by,
            },
            name=lambda row: row.id,
            nothing="no tokens",
        )
    )
    return worst


def revoke(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.revoke_token(options.token_id)
    print(f"token {options.token_id} is revoked")
    return Exit.OK


def _sources(options: Namespace) -> Iterable[tuple[str, Callable[[Namespace], list[Row]]]]:
    if options.kind != JOIN:
        yield PERSON, _of_people
    if options.kind == JOIN or _has_authority(options):
        yield JOIN, _to_join
    elif not options.kind:
        print(
            "note: join tokens are not listed: set the address of the CA with --authority",
            file=sys.stderr,
        )


def _has_authority(options: Namespace) -> bool:
    said = options.authority or os.environ.get("PERSYS_CA_ADDR")
    return bool(said or read_file(options).get("ca_endpoint"))


def _of_people(options: Namespace) -> list[Row]:
    with scheduler(options) as client:
        found = client.list_tokens()
    now = SystemClock().now()
    return [_person(token, now) for token in found]


def _to_join(options: Namespace) -> list[Row]:
    with authority(options) as client:
        found = client.tokens(options.limit or _LIMIT)
    now = SystemClock().now()
    return [_joining(token, now) for token in found]


def _person(token: pb.TokenView, now: datetime) -> Row:
    expires_at = _instant(token.expires_at.ToDatetime())
    return Row(
        id=token.token_id,
        kind=PERSON,
        role=token.role,
        name=token.name,
        state="expired" if now >= expires_at else "valid",
        created_at=_instant(token.created_at.ToDatetime()),
        expires_at=expires_at,
        created_by=token.created_by,
        deeds=tuple(token.deeds),
    )


def _joining(token: TokenView, now: datetime) -> Row:
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


def _may(deeds: Iterable[str]) -> str:
    """The permissions, without `anyone`, which every identity has."""
    return ", ".join(deed for deed in deeds if deed != "anyone")


def _instant(said: datetime) -> datetime:
    return said.replace(tzinfo=UTC)
