"""persysctl as a process, and in a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time

COMMAND = (sys.executable, "-m", "persys.cli.persysctl")


class Terminal:
    """persysctl in its own terminal."""

    def __init__(self, words: tuple[str, ...], variables: dict[str, str]) -> None:
        self.seen = b""
        self._fd, inner = pty.openpty()
        # Not a plain fork: locks that other threads hold would never be released in the child.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *COMMAND, *words],
            env=variables,
            stdin=inner,
            stdout=inner,
            stderr=inner,
        )
        os.close(inner)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, data: bytes) -> None:
        os.write(self._fd, data)

    def read_until(self, text: bytes) -> None:
        deadline = time.monotonic() + 20
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self.seen += os.read(self._fd, 4096)

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._fd)[3] & termios.ICANON

    def end(self) -> int:
        return self._process.wait(timeout=20)
