"""Join tokens: how a node, a scheduler or a gateway gets its first certificate."""

import sys
from argparse import Namespace
from datetime import datetime

from persys.cli.exits import Exit
from persys.cli.peers import authority
from persys.cli.records import render
from persys.cli.settings import duration
from persys.infra.clock import SystemClock
from persys.wire.authority import TokenRequest, TokenView


def create(options: Namespace) -> Exit:
    """The token alone on standard output, so that a script can take it; what to do with it beside."""
    ttl = duration(options.ttl, "--ttl").total_seconds() if options.ttl else None
    with authority(options) as client:
        made = client.invite(TokenRequest(options.role, options.name, tuple(options.host), ttl))
    print(made.token)
    until = f"{made.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    use = (
        "persys-agent join SCHEDULER TOKEN"
        if options.role == "agent"
        else "persysctl certificate join TOKEN --out DIRECTORY"
    )
    print(f"good once, until {until}, for {options.role} {options.name}: {use}", file=sys.stderr)
    return Exit.OK


def show(options: Namespace) -> Exit:
    with authority(options) as client:
        tokens = client.tokens(options.limit or 100)
    now = SystemClock().now()
    print(
        render(
            tokens,
            options,
            columns={
                "ID": lambda token: token.id,
                "FOR": lambda token: f"{token.role}/{token.name}",
                "STATE": lambda token: _state(token, now),
                "EXPIRES": lambda token: f"{token.expires_at:%Y-%m-%d %H:%M}",
                "BY": lambda token: token.created_by,
            },
            name=lambda token: token.id,
            nothing="no tokens",
        )
    )
    return Exit.OK


def _state(token: TokenView, now: datetime) -> str:
    if token.used_at is not None:
        return "used"
    return "expired" if now >= token.expires_at else "unused"
