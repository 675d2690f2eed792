"""Named points at which a test kills this process.

PERSYS_FAILPOINT=name kills the process with SIGKILL the first time the point is reached, name:3 the third
time. name@key counts only calls with that key. name=segfault ends the process with a segmentation fault and
name=exit with SystemExit. If the variable is not set, a point costs one comparison.
"""

import ctypes
import os
import signal

_place, _, _action = os.environ.get("PERSYS_FAILPOINT", "").partition("=")
_place, _, _count = _place.partition(":")
_name, _, _key = _place.partition("@")
_left = int(_count or 1)


def failpoint(name: str, key: str = "") -> None:
    global _left
    if name != _name or (_key and key != _key):
        return
    _left -= 1
    if _left > 0:
        return
    match _action:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            raise SystemExit("failpoint")
        case _:
            os.kill(os.getpid(), signal.SIGKILL)
