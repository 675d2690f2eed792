"""Checks that all files that Compose reads to resolve a project are inside the project."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from persys.errors import InvalidError
from persys.wire.compose.secret_references import PROJECT_DIRECTORY, Reference, references

FILES_MAX = 50
FILE_BYTES_MAX = 1024 * 1024
# Compose also reads its own options from an env file.
_COMPOSE_OPTIONS = re.compile(
    rb"^\s*(?:export\s+)?(?:DOCKER_|COMPOSE_(?!PROFILES\b|PROJECT_NAME\b))", re.M
)


def references_problem(file: Path, base: Path) -> str:
    """Why Compose must not resolve this file; "" if all files it would read are below `base`. OSError."""
    try:
        found = _collect(file, base)
    except InvalidError as err:
        return str(err)
    directories = {one.parent for one in found}
    for one, items in found.items():
        directories |= {one.parent / item.path for item in items if item.key == PROJECT_DIRECTORY}
    for one, items in found.items():
        for item in items:
            if problem := _problem(item, directories, base):
                name = one.relative_to(base)
                return f"{item.key}: {name} line {item.line}: {item.path[:200]!r} {problem}"
    return ""


def project_env(path: Path) -> bytes:
    """The content of the repository's env file, or b"". Raises InvalidError, OSError."""
    if not path.is_file():
        return b""
    content = _read(path)
    if found := _COMPOSE_OPTIONS.search(content):
        name = found[0].decode(errors="replace").strip()
        raise InvalidError(".env", f"variables that begin with {name} are not allowed in this file")
    return content + b"\n"


def _collect(file: Path, base: Path) -> dict[Path, list[Reference]]:
    """The references of each Compose file, starting with `file`."""
    found: dict[Path, list[Reference]] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one in found or not one.is_file():
            continue
        if len(found) >= FILES_MAX:
            raise InvalidError("include", f"refers to more than {FILES_MAX} files")
        found[one] = references(_read(one).decode("utf-8", "replace"))
        for item in found[one]:
            if item.is_compose_file and not _problem(item, {one.parent}, base):
                for directory in {one.parent, file.parent}:
                    waiting.append(Path(os.path.normpath(directory / item.path)))
    return found


def _problem(item: Reference, directories: set[Path], base: Path) -> str:
    if "$" in item.path:
        return "contains a variable, which is not allowed in a file path"
    if urlsplit(item.path).scheme or "@" in item.path.partition("/")[0]:
        return "is not a file of the project"
    inside = all(
        Path(os.path.normpath(directory / item.path)).is_relative_to(base)
        for directory in directories
    )
    return "" if inside else "is outside the project"


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidError(path.name, f"is larger than {FILE_BYTES_MAX} bytes")
    return content
