"""Persys Compute: containers, Compose stacks and virtual machines on ordinary servers."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str

# gRPC restarts its threads in the child of a fork, and that child may crash before it executes its program.
# Children of these processes only ever execute one. gRPC reads this when it is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# The C core of gRPC writes plain lines to standard error, between the JSON lines of our own log. What
# matters of them reaches us as the status of a call. Set GRPC_VERBOSITY to see them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def __getattr__(name: str) -> str:
    """`__version__` is read on first use: few commands use it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()["__version__"] = _installed_version()
    return found


def _installed_version() -> str:
    """The same as importlib.metadata.version, whose import takes longer than most commands of persysctl."""
    from pathlib import Path  # start-up time of commands that do not need it

    for directory in sys.path:
        for metadata in Path(directory).glob("persys-*.dist-info/METADATA"):
            for line in metadata.read_text("utf-8").splitlines():
                if line.startswith("Version: "):
                    return line.removeprefix("Version: ")
    return "0+unknown"  # sources that are not installed
