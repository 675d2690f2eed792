"""A shell on a pseudo-terminal: commands are typed, and the screen is read until the next prompt."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Variables of the shell. They end with a pattern that no command prints.
PROMPTS = {"PS1": "[exit $?]> ", "PS2": ""}
_PROMPT = re.compile(rb"\[exit (\d+)\]> \Z")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
_SPINNER = re.compile(r"[\u2800-\u28ff] ")
_WIDTH, _HEIGHT = 120, 40


class Screen(NamedTuple):
    """The output of one command, without control sequences and lines that show progress."""

    code: int
    text: str
    seconds: float


class Terminal:
    """`command` starts a shell with PROMPTS in its environment."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], directory: Path
    ) -> None:
        self._line, shell_side = pty.openpty()
        os.set_inheritable(shell_side, True)
        size = f"stty rows {_HEIGHT} columns {_WIDTH} -echo"
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "sh", "-c", f'{size}; exec "$@"', "sh", *command],
            env={**environment, "TERM": "xterm", **PROMPTS},
            cwd=directory,
            stdin=shell_side,
            stdout=shell_side,
            stderr=shell_side,
        )
        os.close(shell_side)
        self.transcript = ""
        self._read_until_prompt(60)

    def run(self, line: str, *, within: float = 120) -> Screen:
        """Type a line and wait for the next prompt."""
        started_at = time.monotonic()
        os.write(self._line, f"{line}\n".encode())
        code, text = self._read_until_prompt(within)
        seconds = time.monotonic() - started_at
        self.transcript += f"$ {line}\n{text}"
        return Screen(code, text, seconds)

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait(60)
        os.close(self._line)

    def _read_until_prompt(self, within: float) -> tuple[int, str]:
        shown, ends_at = b"", time.monotonic() + within
        while not (prompt := _PROMPT.search(shown)):
            if not select.select([self._line], [], [], max(0.0, ends_at - time.monotonic()))[0]:
                raise AssertionError(
                    f"no prompt within {within:g} s:\n{self.transcript}{_plain(shown)}"
                )
            shown += os.read(self._line, 65536)
        return int(prompt[1]), _plain(shown[: prompt.start()])


def _plain(shown: bytes) -> str:
    text = _CONTROL.sub("", shown.decode(errors="replace"))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").splitlines(keepends=True)
    return "".join(line for line in lines if not _SPINNER.match(line))
