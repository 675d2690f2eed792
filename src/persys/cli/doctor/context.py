"""Checks ~/.persys/config.yaml: readable, valid, and accessible only to its owner."""

from argparse import Namespace
from collections.abc import Iterator

from persys.cli.connect.context_file import context_path, wide_open
from persys.cli.connect.settings import Settings, Transport, load
from persys.cli.doctor.finding import Finding, fail, ok, warn
from persys.errors import PersysError

CHECK = "context"


def look(options: Namespace) -> tuple[list[Finding], Settings | None]:
    """The findings, and the settings; without settings no other check can run."""
    try:
        settings = load(options)
    except PersysError as err:
        cure = f"correct {context_path()}, or use another context with --context"
        return [fail(CHECK, str(err), cure)], None
    return list(_of_file(settings)), settings


def _of_file(settings: Settings) -> Iterator[Finding]:
    path = context_path()
    if open_to_others := wide_open():
        yield warn(CHECK, open_to_others, f"chmod 600 {path}")
    whom = (
        f"the gateway {settings.gateway}"
        if settings.transport is Transport.HTTP
        else f"the scheduler {settings.scheduler}"
    )
    from_where = str(path) if path.exists() else "no file; from flags, variables and defaults"
    yield ok(CHECK, f"uses {whom} ({from_where})")
