"""Runs the programs for volumes, with a deadline, and maps their failures.

A failure is classified by program and exit code; the output is only shown.
"""

import os
import shutil
from collections.abc import Collection

from persys.errors import PersysError
from persys.infra.subprocesses import ProgramResult, run
from persys.model.status import Failure, FailureReason

BRIEF_SECONDS = 30.0
LONG_SECONDS = 600.0  # to create or grow a file system
_SYSTEM = (
    "/usr/local/sbin:/usr/sbin:/sbin"  # may be missing in PATH if root starts the agent manually
)
_OUTPUT_LENGTH_MAX = 400


class VolumeError(PersysError):
    """A volume operation failed. `code` is a more specific reason."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: FailureReason = FailureReason.STORAGE_ERROR,
    ) -> None:
        super().__init__(message)
        self.failure = Failure(reason, message, retryable=reason.retryable, code=code)


class Programs:
    def __init__(self, path: str | None = None) -> None:
        self._path = path if path is not None else f"{os.environ.get('PATH', '')}:{_SYSTEM}"

    def missing(self, *names: str) -> list[str]:
        return [name for name in names if shutil.which(name, path=self._path) is None]

    async def run(
        self, *command: str, deadline: float = BRIEF_SECONDS, ok: Collection[int] = (0,)
    ) -> ProgramResult:
        """Raises VolumeError unless the program exits with one of `ok`."""
        program = command[0]
        found = shutil.which(program, path=self._path)
        if found is None:
            raise VolumeError(f"{program} is not installed on this node", code="ToolMissing")
        env = {"PATH": self._path, "LC_ALL": "C", "HOME": os.environ.get("HOME", "/")}
        try:
            ran = await run([found, *command[1:]], env=env, deadline=deadline)
        except TimeoutError as err:
            text = f"{program} did not finish within {deadline:.0f} s"
            raise VolumeError(text, code="ToolTimeout") from err
        except OSError as err:
            text = f"cannot run {program}: {err.strerror}"
            raise VolumeError(text, code="ToolMissing") from err
        if ran.code not in ok:
            text = f"{program} exited with code {ran.code}: {output_of(ran)}"
            raise VolumeError(text, code="ToolFailed")
        return ran


def output_of(ran: ProgramResult) -> str:
    """The output of the program in one line."""
    return " ".join((ran.err or ran.out).split())[-_OUTPUT_LENGTH_MAX:] or "no output"
