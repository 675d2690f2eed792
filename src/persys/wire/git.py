"""Where a repository may be and what may be named in it: nothing that git could take for an option."""

import re
from posixpath import normpath
from urllib.parse import urlsplit

from persys.errors import InvalidError
from persys.wire import checks

_SCHEMES = ("https", "ssh", "file")
# user@host:path, which git takes for ssh
_SCP = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9.-]+:(?!//)\S+")


def repository(text: str, path: str) -> str:
    word(text, path)
    url = urlsplit(text)
    if "://" not in text:
        if not _SCP.fullmatch(text) or "::" in text:
            raise InvalidError(path, f"{checks.shown(text)} is no URL; use https, ssh or file")
        return text
    if url.scheme not in _SCHEMES:
        raise InvalidError(path, f"{url.scheme!r} is not supported; use https, ssh or file")
    if url.password is not None or (url.username is not None and url.scheme == "https"):
        # It must not be quoted either.
        raise InvalidError(path, "holds a credential; name one that the node keeps: git_credential")
    if url.scheme == "file":
        _check_local(text, path)
    elif not url.hostname:
        raise InvalidError(path, f"{checks.shown(text)} names no host")
    return text


def host_of(repository: str) -> str:
    """The host, with its port if one is written; "" for a repository on the node itself."""
    if "://" not in repository:
        return repository.partition(":")[0].rpartition("@")[2].lower()
    return urlsplit(repository).netloc.rpartition("@")[2].lower()


def _check_local(text: str, path: str) -> None:
    """git decodes %2e, and file systems resolve '..': either would lead out of what was checked."""
    url = urlsplit(text)
    plain = url.path.rstrip("/")
    if url.netloc or "%" in text or url.query or url.fragment or normpath(plain) != plain:
        expected = "expected file:///PATH without '..', '%' or a host"
        raise InvalidError(path, f"invalid repository {checks.shown(text)}: {expected}")


def word(text: str, path: str) -> str:
    """Never empty, and nothing that git could take for an option."""
    if text.split() != [text] or text.startswith("-") or not text.isprintable():
        raise InvalidError(path, f"{checks.shown(text)} is nothing that git can fetch")
    return text


def path(text: str, where: str) -> str:
    """A path inside the repository, of a Compose file or of the directory that has it."""
    if not text:
        return ""
    if text.startswith(("/", "-")) or not text.isprintable() or ".." in text.split("/"):
        raise InvalidError(where, f"{checks.shown(text)} is no path inside the repository")
    plain = normpath(text)
    if plain.split("/")[0] == ".git":
        raise InvalidError(where, "is where git keeps its own")
    return "" if plain == "." else plain
