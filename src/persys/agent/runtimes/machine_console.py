"""The end of what a machine wrote on its serial console, as people can read it."""

import re
from pathlib import Path

from persys.core.report import LOG_TAIL_BYTES_MAX

# Colours, cursor moves and the like, which firmware and boot loaders write many of.
CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[0-Z\\-~])|[\x00-\x08\x0b-\x1f\x7f]")


def tail_of(path: Path) -> str:
    """ "" if there is nothing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2 * LOG_TAIL_BYTES_MAX))
            written = file.read()
    except OSError:
        return ""
    return CONTROL.sub("", written.decode("utf-8", "replace"))
