"""Reads the spec files of a command into requests. An error names the file and the line.

A name is a file, a directory (its .yaml, .yml and .json files, sorted by name) or `-` for standard input.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.framework.exit_codes import UsageError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest

if TYPE_CHECKING:
    from persys.wire.specfile.parser import SpecDocument


_STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Spec:
    """One workload, and the file it comes from."""

    file: str
    document: "SpecDocument"

    @property
    def request(self) -> ApplyWorkloadRequest:
        return self.document.request

    def located(self, error: str) -> str:
        """Prefix a server's error with `FILE:LINE:` of the field that it names, if it names one."""
        from persys.wire.specfile.document import split_field

        field, problem = split_field(error)
        if not field:
            return error
        line, problem = self.document.located(field, problem)
        at = f":{line}" if line else ""
        return f"{self.file}{at}: {field}: {problem}"


def read_specs(names: Sequence[str], *, stack_id: str = "") -> list[Spec]:
    """All workloads of all files, in the given order."""
    found: dict[str, Spec] = {}
    for path in _files(names):
        for spec in _read(path, stack_id):
            workload_id = spec.request.workload_id
            if workload_id in found:
                first = found[workload_id].file
                raise UsageError(f"{spec.file}: id: {workload_id!r} is also in {first}")
            found[workload_id] = spec
    if stack_id and stack_id not in found:
        raise UsageError("--id needs a Compose file, and none of the files is one")
    return list(found.values())


def requests_of(specs: Sequence[Spec]) -> list[ApplyWorkloadRequest]:
    return [spec.request for spec in specs]


def _files(names: Sequence[str]) -> Iterator[str]:
    if names.count(_STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    for name in names:
        path = Path(name)
        if name == _STDIN or not path.is_dir():
            yield name
            continue
        inside = sorted(str(each) for each in path.iterdir() if each.suffix in _SUFFIXES)
        if not inside:
            raise UsageError(f"{name} has no {', '.join(_SUFFIXES)} files")
        yield from inside


def _read(name: str, stack_id: str) -> list[Spec]:
    from persys.wire.specfile.parser import read_spec_file
    from persys.wire.specfile.strict import SpecFileError

    shown = "standard input" if name == _STDIN else name
    directory = "" if name == _STDIN else Path(name).resolve().parent.name
    try:
        text = sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
        documents = read_spec_file(text, stack_id=stack_id, directory=directory)
    except OSError as err:
        raise UsageError(f"cannot read {shown}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise UsageError(f"cannot read {shown}: it is not UTF-8 text") from err
    except SpecFileError as err:
        line = f":{err.line}" if err.line else ""
        raise UsageError(f"{shown}{line}: {err}") from err
    return [Spec(shown, document) for document in documents]
