"""The hosts of `--hosts` and `--hosts-file`, and the members of the cluster that they become."""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from persys.cli.framework.exit_codes import UsageError
from persys.errors import InvalidError
from persys.model.ids import node_id

# A word that starts with a hyphen would be an option of ssh.
_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z_][\w.-]*)@)?(?P<host>[A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?",
    re.ASCII,
)
_PORT_MAX = 65535
_EXPECTED = "expected [USER@]HOST[:PORT], for example ada@10.0.0.1:22"
_KEYS = ("name", "address")


class Host(NamedTuple):
    """A host as the user names it."""

    destination: str  # [USER@]HOST, as for ssh
    port: int = 0  # 0: as ssh is configured
    name: str = ""  # of the node; "": the host name that the host reports
    address: str = ""  # for the other hosts; "": the address at which ssh reached it

    def __str__(self) -> str:
        return self.destination + (f":{self.port}" if self.port else "")


class Member(NamedTuple):
    """A host in its role in the cluster."""

    host: Host
    name: str
    address: str
    python: str  # the command of its Python

    def at(self, port: int) -> str:
        """The address with a port, as our programs and URLs write it."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


def parse_hosts(text: str) -> list[Host]:
    """Hosts separated by commas. Raises UsageError."""
    return _without_duplicates(_parse(word) for part in text.split(",") if (word := part.strip()))


def parse_hosts_file(text: str) -> list[Host]:
    """One host per line, with optional `name=NAME` and `address=ADDRESS`. Raises UsageError."""
    lines = ((number, line.partition("#")[0].split()) for number, line in _numbered(text))
    return _without_duplicates(_parse_line(number, words) for number, words in lines if words)


def _numbered(text: str) -> Iterable[tuple[int, str]]:
    return enumerate(text.splitlines(), 1)


def _parse_line(number: int, words: Sequence[str]) -> Host:
    try:
        host = _parse(words[0])
        given = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if key not in _KEYS or not equals or not value:
                raise UsageError(f"invalid setting '{word}': expected name=NAME or address=ADDRESS")
            given[key] = value
        name, address = given.get("name", ""), given.get("address", "")
        return host._replace(name=name and _node_name(name), address=address and _address(address))
    except UsageError as err:
        raise UsageError(f"line {number} of the hosts file: {err}") from err


def _node_name(name: str) -> str:
    try:
        return node_id(name, field="name")
    except InvalidError as err:
        raise UsageError(str(err)) from err


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as err:
        raise UsageError(
            f"invalid address '{text}': expected an IP address, for example 10.0.0.1"
        ) from err


def _parse(word: str) -> Host:
    found = _HOST.fullmatch(word)
    port = int(found["port"] or 0) if found else 0
    if found is None or port > _PORT_MAX or (found["port"] and not port):
        raise UsageError(f"invalid host '{word}': {_EXPECTED}")
    user = f"{found['user']}@" if found["user"] else ""
    return Host(user + found["host"].strip("[]"), port)


def _without_duplicates(hosts: Iterable[Host]) -> list[Host]:
    found = list(hosts)
    if not found:
        raise UsageError(f"no hosts: {_EXPECTED}")
    seen: set[tuple[str, int]] = set()
    for host in found:
        key = (host.destination, host.port)
        if key in seen:
            raise UsageError(f"host '{host}' is listed twice")
        seen.add(key)
    return found
