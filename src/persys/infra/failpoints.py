"""Named places where a test makes this process die.

PERSYS_FAILPOINT=name kills, as by kill -9, at the first time the named place is passed; name:3 at the third.
name@key only counts passes for that key, and name=segfault or name=exit dies of a fault of its own: by a
fatal signal, or by an exception that leaves every frame. Unset, a place costs one comparison.
"""

import ctypes
import os
import signal

_place, _, _action = os.environ.get("PERSYS_FAILPOINT", "").partition("=")
_place, _, _count = _place.partition(":")
_name, _, _key = _place.partition("@")
_left = int(_count or 1)


def passing(name: str, key: str = "") -> None:
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
