"""`persysctl secret`. A value comes from a file, a variable or standard input, never from an argument.

Arguments are visible to other users of the machine.
"""

import os
import sys
from argparse import Namespace
from getpass import getpass
from pathlib import Path

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, render_list
from persys.errors import InvalidError
from persys.wire.gen.control.v1.control_pb2 import SecretView

_COLUMNS = (
    Column[SecretView]("NAME", lambda secret, now: secret.name),
    Column[SecretView]("VERSION", lambda secret, now: str(secret.version)),
    Column[SecretView]("USED BY", lambda secret, now: _users(secret)),
    Column[SecretView](
        "VERSIONS", lambda secret, now: ",".join(map(str, secret.versions)), wide=True
    ),
    Column[SecretView]("BY", lambda secret, now: secret.updated_by or BLANK, wide=True),
    Column[SecretView]("AGE", lambda secret, now: age(secret, "updated_at", now=now)),
)
_USERS_SHOWN_MAX = 3


def put(options: Namespace) -> ExitCode:
    value = _value(options)
    with scheduler_client(options) as client:
        secret = client.put_secret(options.secret, value)
    print(f"secret {secret.name} has version {secret.version}")
    if secret.used_by:
        print(
            f"{', '.join(secret.used_by)} use the old version until `persysctl workload redeploy`",
            file=sys.stderr,
        )
    return ExitCode.OK


def list_secrets(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            client.list_secrets,
            lambda found: render_list(
                found,
                options,
                columns=_COLUMNS,
                name=lambda secret: secret.name,
                empty="no secrets",
            ),
            watch=options.watch,
        )


def delete(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.delete_secret(options.secret)
    print(f"secret {options.secret} is deleted, with all its versions")
    return ExitCode.OK


def _value(options: Namespace) -> bytes:
    """The content of a file unchanged; typed or piped input without the newline at its end."""
    if options.from_file and options.from_env:
        raise InvalidError("--from-env", "cannot be combined with --from-file")
    if options.from_file:
        try:
            return Path(options.from_file).read_bytes()
        except OSError as err:
            raise InvalidError("--from-file", f"{options.from_file}: {err.strerror}") from err
    if options.from_env:
        value = os.environ.get(options.from_env)
        if value is None:
            raise InvalidError("--from-env", f"environment variable {options.from_env} is not set")
        return os.fsencode(value)
    if sys.stdin.isatty():
        return getpass(f"value of {options.secret}: ").encode()
    return sys.stdin.buffer.read().removesuffix(b"\n")


def _users(secret: SecretView) -> str:
    more = len(secret.used_by) - _USERS_SHOWN_MAX
    shown = ",".join(secret.used_by[:_USERS_SHOWN_MAX]) or BLANK
    return f"{shown} and {more} more" if more > 0 else shown
