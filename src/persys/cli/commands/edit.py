"""`persysctl edit`: opens the spec of a workload, set or job in an editor, shows the plan, asks, and applies.

A spec that is invalid or refused is opened again with the error as a comment. If it is then left unchanged,
the edit ends and the file is kept.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import find_any
from persys.cli.commands.plan import REFUSED, plans_of, rendered
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.specs.apply import apply_specs
from persys.cli.specs.sources import Source
from persys.cli.specs.spec_files import Specs, parse
from persys.errors import InvalidError, RefusedError
from persys.wire.gen.control.v1.control_pb2 import JobView, SetView, WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient
    from persys.wire.gen.control.v1.control_pb2 import WorkloadPlan

_EDITORS = ("vi", "nano")
_HEAD = """\
# Edit the spec, save and close the file. The changes are shown before they are applied.
# Lines that begin with # are ignored. A file without changes ends the edit.
"""
_ERROR = "# error: "
# Of a file that is opened again: the head and the error. The lines in an error count them.
_LINES_ABOVE = 3


def edit(options: Namespace) -> int:
    directory = Path(tempfile.mkdtemp(prefix="persysctl-edit-"))
    path = directory / f"{options.id}.yaml"
    try:
        with scheduler_client(options) as client:
            specs = _edited(client, options, path)
        code = ExitCode.OK if specs is None else apply_specs(options, specs)
    except (RefusedError, UsageError):
        _keep(path)
        raise
    if code != ExitCode.OK:
        _keep(path)
        return code
    shutil.rmtree(directory)
    return code


def _edited(client: "SchedulerClient", options: Namespace, path: Path) -> Specs | None:
    """The specs to apply, or None if nothing is to be changed."""
    before = _text_and_revision(client, options.id)
    original = before[0]
    text, error = original, ""
    while True:
        path.write_text(_commented(error) + text, encoding="utf-8")
        _open_editor(path)
        shown, text = text, _without_comments(path.read_text(encoding="utf-8"))
        if text == original or not text.strip():
            print(f"{options.id}: unchanged")
            return None
        if error and text == shown:
            raise UsageError(error)
        try:
            specs, plans = _checked(client, options, path, text)
        except (UsageError, InvalidError) as err:
            error = str(err)
            continue
        break
    print(rendered(plans, None))
    if not options.yes and not _confirmed():
        raise UsageError("not applied")
    if _text_and_revision(client, options.id) != before:
        raise RefusedError(f"{options.id} was changed by another request; edit it again")
    return specs


def _text_and_revision(client: "SchedulerClient", name: str) -> tuple[str, str]:
    """The spec as a file, and what changes with every request that changes it."""
    from persys.wire.specfile.export import job_text, set_text, workload_text

    match find_any(client, name):
        case WorkloadView() as workload:
            return workload_text(workload, status=False), workload.revision_id
        case SetView() as view:
            return set_text(view, status=False), str(view.target_revision)
        case JobView() as job:
            return job_text(job, status=False), ""


def _checked(
    client: "SchedulerClient", options: Namespace, path: Path, text: str
) -> tuple[Specs, "list[WorkloadPlan]"]:
    """Raises UsageError for a spec that is invalid or would be refused."""
    specs = parse([Source(path.name, "\n" * _LINES_ABOVE + text)])
    if specs.ids != [options.id] or specs.pools or specs.services:
        raise UsageError(f"{path.name}: id: cannot be changed; expected only {options.id}")
    plans = plans_of(client, specs)
    for plan in plans:
        if plan.action == REFUSED:
            raise UsageError(plan.reason)
    return specs, plans


def _open_editor(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _installed_editor()
    try:
        ended = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except (OSError, ValueError) as err:
        raise UsageError(f"cannot start the editor {editor!r}: {err}; set EDITOR") from err
    if ended.returncode != 0:
        raise UsageError(f"the editor {editor!r} ended with exit code {ended.returncode}")


def _installed_editor() -> str:
    for name in _EDITORS:
        if shutil.which(name):
            return name
    raise UsageError("no editor found: set EDITOR, for example EDITOR=nano")


def _commented(error: str) -> str:
    lines = [f"{_ERROR}{line}" for line in error.splitlines()]
    return _HEAD + "".join(f"{line}\n" for line in lines)


def _without_comments(text: str) -> str:
    """Without the comments at the head; others may be part of a text block."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        del lines[0]
    return "".join(lines)


def _confirmed() -> bool:
    print("Apply these changes? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _keep(path: Path) -> None:
    if path.exists():
        print(f"the edited file is kept: {path}", file=sys.stderr)
