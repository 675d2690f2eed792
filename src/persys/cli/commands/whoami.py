"""`persysctl cluster whoami`."""

from argparse import Namespace
from datetime import datetime

from persys import __version__
from persys.cli.connect.clients import scheduler
from persys.cli.framework.exit_codes import Exit
from persys.cli.framework.output import described, render_one
from persys.wire.gen.control.v1.control_pb2 import IdentityView


def whoami(options: Namespace) -> Exit:
    with scheduler(options) as client:
        print(
            render_one(
                client.get_identity(),
                options,
                describe=_describe,
                name=lambda found: (
                    f"{found.role}/{found.name}" if found.role else "unauthenticated"
                ),
            )
        )
    return Exit.OK


def _describe(found: IdentityView, now: datetime, wide: bool) -> str:
    if not found.role:
        return described((("Identity", "unauthenticated (the scheduler runs with -insecure)"),))
    return described(
        (
            ("Identity", f"{found.role}/{found.name}"),
            ("Permissions", ", ".join(found.deeds)),
            _by(found),
        )
    )


def _by(found: IdentityView) -> tuple[str, str]:
    until = f"until {found.expires_at.ToJsonString()}"
    if found.token_id:
        return "Token", f"{found.token_id}, {until}"
    return "Certificate", f"{found.serial}, {until}"


def show_version(options: Namespace) -> Exit:
    print(f"persysctl {__version__}")
    return Exit.OK
