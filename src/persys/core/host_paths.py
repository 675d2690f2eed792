"""Which paths of the host a workload may use as a bind mount, a disk or a repository.

Without configured roots every path is allowed except the protected ones: the directories that hold the
node's own configuration, secrets, devices and runtime sockets, and everything above or below them. With
roots only paths below a root are allowed, and a protected directory only if a root names it or a directory
in it.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath

SYSTEM_DIRECTORIES = (
    *(f"/{name}" for name in ("boot", "dev", "etc", "proc", "root", "run", "sys")),
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/libvirt",
    "/var/lib/persys",
    "/var/run",
)
PATH_BYTES_MAX = 4096
NAME_BYTES_MAX = 255
_ROOT = PurePosixPath("/")


def problem_with(path: str, *, roots: Iterable[str], protected: Iterable[str]) -> str:
    """Why this path is refused; an empty string if it is allowed. Links are not resolved here."""
    if malformed := _malformed(path):
        return malformed
    wanted = PurePosixPath(path)
    listed = [PurePosixPath(root) for root in roots]
    containing = [root for root in listed if wanted.is_relative_to(root)]
    if listed and not containing:
        return f"{path!r} is not below {', '.join(map(str, listed))} (PERSYS_BIND_ROOTS)"
    if wanted in listed:
        return ""
    if wanted == _ROOT:
        return f"{path!r} is protected; PERSYS_BIND_ROOTS does not list it"
    for name in protected:
        guarded = PurePosixPath(name)
        overlaps = wanted.is_relative_to(guarded) or guarded.is_relative_to(wanted)
        if overlaps and not any(root.is_relative_to(guarded) for root in containing):
            return f"{path!r} is refused because {name} is protected; PERSYS_BIND_ROOTS does not list it"
    return ""


def root_of(path: str, roots: Iterable[str]) -> str:
    """The closest configured root above a path, or "/" without roots."""
    wanted = PurePosixPath(path)
    containing = [root for root in roots if wanted.is_relative_to(root)]
    return max(containing, key=len, default="/")


def _malformed(path: str) -> str:
    shown = repr(path if len(path) <= NAME_BYTES_MAX else f"{path[:NAME_BYTES_MAX]}…")
    if not path.startswith("/") or path.startswith("//"):
        return f"invalid path {shown}: expected an absolute path"
    if "\0" in path or len(path.encode()) >= PATH_BYTES_MAX:
        return f"invalid path {shown}: expected at most {PATH_BYTES_MAX - 1} bytes without NUL"
    parts = path.split("/")
    if ".." in parts:
        return f"invalid path {shown}: '..' is not allowed"
    if any(len(part.encode()) > NAME_BYTES_MAX for part in parts):
        return f"invalid path {shown}: a name is longer than {NAME_BYTES_MAX} bytes"
    return ""
