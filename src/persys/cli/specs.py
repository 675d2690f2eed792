"""The spec file that a command names, read into requests; what is wrong with it is told with its line."""

import sys
from pathlib import Path

from persys.cli.exits import UsageError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest


def read_specs(name: str) -> list[ApplyWorkloadRequest]:
    from persys.wire.specfile import read_spec_file
    from persys.wire.strict import SpecFileError

    shown = "standard input" if name == "-" else name
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        return [document.request for document in read_spec_file(text)]
    except OSError as err:
        raise UsageError(f"cannot read {shown}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise UsageError(f"cannot read {shown}: it is not UTF-8 text") from err
    except SpecFileError as err:
        line = f":{err.line}" if err.line else ""
        raise UsageError(f"{shown}{line}: {err}") from err
