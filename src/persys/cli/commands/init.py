"""`persysctl init`: writes commented spec files to start from. An existing file is never overwritten.

The first line of each file names the JSON schema beside it, which gives completion in editors. The path is
relative, so that both files can be committed and used by others.
"""

from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.specs.sources import SCHEMA_SUFFIX

SCHEMA_FILE = f"workload{SCHEMA_SUFFIX}"
_EXAMPLES = "persys.examples"
_STDOUT = "-"
_APPLY = {"nodepool": "nodepool create"}
_SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"


def create(options: Namespace) -> ExitCode:
    from persys.cli.framework.arguments import EXAMPLE_TYPES

    if options.out and not options.type:
        raise UsageError(f"-o needs a type: expected one of {', '.join(EXAMPLE_TYPES)}")
    types = [options.type] if options.type else EXAMPLE_TYPES
    targets = {kind: Path(options.out or f"{kind}.yaml") for kind in types}
    if options.out == _STDOUT:
        print(_example(options.type), end="")
        return ExitCode.OK
    for target in targets.values():
        if target.exists():
            raise UsageError(f"{target} exists; write to another file with -o FILE")
    for kind, target in targets.items():
        _write(target, _SCHEMA_LINE + _example(kind))
        print(f"{target}: edit it, then run `persysctl {_APPLY.get(kind, 'apply')} -f {target}`")
    _write_schema(next(iter(targets.values())).parent / SCHEMA_FILE)
    return ExitCode.OK


def _example(kind: str) -> str:
    return (files(_EXAMPLES) / f"{kind}.yaml").read_text(encoding="utf-8")


def _write_schema(target: Path) -> None:
    from persys.wire.schema import json_schema  # only here: start-up time

    if not target.exists():
        _write(target, json_schema.text())
        print(f"{target}: the schema of these files, for completion in editors")


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as err:
        raise UsageError(f"cannot write {target}: {err.strerror}") from err
