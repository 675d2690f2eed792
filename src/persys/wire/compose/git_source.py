"""Validation of Git repository URLs, refs and paths. Nothing that git could read as an option is accepted."""

import re
from posixpath import normpath
from urllib.parse import urlsplit

from persys.errors import InvalidError
from persys.wire.spec import checks

_SCHEMES = ("https", "ssh", "file")
# user@host:path, which git treats as SSH
_SCP = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9.-]+:(?!//)\S+")


def repository(text: str, path: str) -> str:
    word(text, path)
    url = urlsplit(text)
    if "://" not in text:
        if not _SCP.fullmatch(text) or "::" in text:
            expected = "expected an https, ssh or file URL"
            raise InvalidError(path, f"invalid repository {checks.quoted(text)}: {expected}")
        return text
    if url.scheme not in _SCHEMES:
        raise InvalidError(path, f"unsupported scheme {url.scheme!r}: expected https, ssh or file")
    if url.password is not None or (url.username is not None and url.scheme == "https"):
        # The URL is not quoted, because it contains the credential.
        raise InvalidError(
            path, "contains a credential; set git_credential to a credential stored on the node"
        )
    if url.scheme == "file":
        _check_local(text, path)
    elif not url.hostname:
        raise InvalidError(path, f"invalid repository {checks.quoted(text)}: the host is missing")
    return text


def host_of(repository: str) -> str:
    """The host, with its port if one is written; "" for a repository on the node itself."""
    if "://" not in repository:
        return repository.partition(":")[0].rpartition("@")[2].lower()
    return urlsplit(repository).netloc.rpartition("@")[2].lower()


def _check_local(text: str, path: str) -> None:
    """Refuse '%' and '..': git decodes %2e, and both could lead to a path that was not checked."""
    url = urlsplit(text)
    plain = url.path.rstrip("/")
    if url.netloc or "%" in text or url.query or url.fragment or normpath(plain) != plain:
        expected = "expected file:///PATH without '..', '%' or a host"
        raise InvalidError(path, f"invalid repository {checks.quoted(text)}: {expected}")


def word(text: str, path: str) -> str:
    """A value that is not empty and that git cannot read as an option."""
    if text.split() != [text] or text.startswith("-") or not text.isprintable():
        expected = "expected a name without spaces that does not begin with -"
        raise InvalidError(path, f"invalid value {checks.quoted(text)}: {expected}")
    return text


def path(text: str, where: str) -> str:
    """A path inside the repository: a Compose file, or the directory that contains it."""
    if not text:
        return ""
    if text.startswith(("/", "-")) or not text.isprintable() or ".." in text.split("/"):
        expected = "expected a relative path inside the repository"
        raise InvalidError(where, f"invalid path {checks.quoted(text)}: {expected}")
    plain = normpath(text)
    if plain.split("/")[0] == ".git":
        raise InvalidError(where, "is inside .git; expected a path in the working tree")
    return "" if plain == "." else plain
