"""The tail of a VM's serial console log without control sequences."""

import re
from pathlib import Path

from persys.core.agent.describe import LOG_TAIL_BYTES_MAX

# Colours, cursor movement and other control sequences of firmware and boot loaders.
CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[0-Z\\-~])|[\x00-\x08\x0b-\x1f\x7f]")


def tail_of(path: Path) -> str:
    """The end of the log, or "" if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2 * LOG_TAIL_BYTES_MAX))
            written = file.read()
    except OSError:
        return ""
    return CONTROL.sub("", written.decode("utf-8", "replace"))
