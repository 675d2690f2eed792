"""`persysctl init`: writes commented spec files to start from. An existing file is never overwritten."""

from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from persys.cli.framework.exit_codes import ExitCode, UsageError

_EXAMPLES = "persys.examples"
_STDOUT = "-"
_APPLY = {"nodepool": "nodepool create"}


def create(options: Namespace) -> ExitCode:
    from persys.cli.framework.arguments import EXAMPLE_TYPES

    if options.out and not options.type:
        raise UsageError(f"-o needs a type: expected one of {', '.join(EXAMPLE_TYPES)}")
    types = [options.type] if options.type else EXAMPLE_TYPES
    targets = {kind: options.out or f"{kind}.yaml" for kind in types}
    if options.out == _STDOUT:
        print(_text(options.type), end="")
        return ExitCode.OK
    for target in targets.values():
        if Path(target).exists():
            raise UsageError(f"{target} exists; write to another file with -o FILE")
    for kind, target in targets.items():
        try:
            with Path(target).open("x", encoding="utf-8") as file:
                file.write(_text(kind))
        except OSError as err:
            raise UsageError(f"cannot write {target}: {err.strerror}") from err
        print(f"{target}: edit it, then run `persysctl {_APPLY.get(kind, 'apply')} -f {target}`")
    return ExitCode.OK


def _text(kind: str) -> str:
    return (files(_EXAMPLES) / f"{kind}.yaml").read_text(encoding="utf-8")
