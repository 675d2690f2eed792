"""Credentials that specs reference by name: files on the node, read for each use.

`<name>.json` or `<name>.yaml` in one directory, readable by its owner only, with `hosts` and any of
`username`, `password`, `ssh_key` and `known_hosts`. `hosts` lists the registries and git servers that may
receive the credential, as HOST or HOST:PORT; without it the file name must be a host name, which is then the
only host.
The content never appears in a message, a log or an error.
"""

import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from persys.core.bounded_yaml import YamlError, YamlLimits, load
from persys.errors import InvalidError, NotFoundError

BYTES_MAX = 64 * 1024
YAML_LIMITS = YamlLimits(bytes_max=BYTES_MAX, nodes_max=100)
_SUFFIXES = (".json", ".yaml")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Credential(Struct, frozen=True, forbid_unknown_fields=True):
    username: str = ""
    password: str = ""
    ssh_key: str = ""  # a private key in OpenSSH format
    known_hosts: str = ""  # as in ~/.ssh/known_hosts; "": the known_hosts of the host
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Credential(…)"  # a traceback must not contain it


class Credentials:
    """All methods block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, name: str) -> Credential:
        """Raises NotFoundError if this node has no such credential, InvalidError if it cannot be used."""
        if not name or "/" in name or name.startswith("."):
            raise NotFoundError("credential", name)
        for suffix in _SUFFIXES:
            path = self.directory / f"{name}{suffix}"
            try:
                content = _read(path)
            except FileNotFoundError:
                continue
            except OSError as err:
                raise InvalidError(f"credential {name}", f"{path}: {err.strerror}") from err
            return _decoded(content, name, path)
        raise NotFoundError("credential", name)

    def get_for(self, name: str, host: str) -> Credential:
        """The credential, if it may be sent to this host. Raises InvalidError, NotFoundError."""
        found = self.get(name)
        hosts = _hosts_of(name, found)
        if host.lower() not in hosts:
            problem = f"is for {', '.join(hosts)}, not for {host or 'a local repository'}"
            raise InvalidError(f"credential {name}", problem)
        return found

    def hosts(self, name: str) -> tuple[str, ...]:
        """The hosts that may receive it. Raises NotFoundError; InvalidError if it has no host."""
        return _hosts_of(name, self.get(name))


def _hosts_of(name: str, credential: Credential) -> tuple[str, ...]:
    if credential.hosts:
        return tuple(host.lower() for host in credential.hosts)
    if "." in name:
        return (name.lower(),)
    problem = 'has no hosts; add the servers that may receive it, for example hosts: ["ghcr.io"]'
    raise InvalidError(f"credential {name}", problem)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = path.stat().st_mode
        if mode & _OTHERS:
            problem = (
                f"invalid mode {stat.S_IMODE(mode):04o}: expected 0600 (readable by its owner only)"
            )
            raise InvalidError(str(path), problem)
        return file.read(BYTES_MAX)


def _decoded(content: bytes, name: str, path: Path) -> Credential:
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(content, type=Credential)
        return msgspec.convert(load(content.decode(), YAML_LIMITS), Credential)
    except (msgspec.DecodeError, UnicodeDecodeError, YamlError):
        pass  # the decoder error and its traceback may quote the content
    expected = "hosts (a list of strings), username, password, ssh_key and known_hosts (strings)"
    raise InvalidError(f"credential {name}", f"{path} cannot be read; expected {expected}")
