"""Imports structlog without rich. Processes import this module before any other that imports structlog.

structlog imports rich if it is installed, to format tracebacks in colour. Our logs format them as plain text,
and rich with its syntax highlighter takes 5 MB of memory and a tenth of the start-up time of a process.
"""

import sys
from types import ModuleType

_ABSENT = "rich"


def _import_structlog() -> ModuleType:
    """An import of a module that is None in `sys.modules` fails as if it were not installed."""
    hidden = _ABSENT not in sys.modules
    if hidden:
        sys.modules[_ABSENT] = None  # type: ignore[assignment]  # documented, but not in its type
    try:
        import structlog
    finally:
        if hidden:
            del sys.modules[_ABSENT]  # the command line uses it
    return structlog


structlog = _import_structlog()
