"""Validation of single spec values, for both contracts.

Each check returns the value in the form of the model, or raises InvalidError with the path of the field and
the expected values. Every apply runs these checks.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from ipaddress import ip_interface
from posixpath import normpath
from typing import TypeVar

from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.model.ids import label_id
from persys.model.network import NETWORKS_MAX
from persys.model.spec import PullPolicy, RestartPolicy

CPU_MILLICORES_MAX = 10_000_000
CPU_SHARES_MAX = 262_144  # the kernel's own limit
MEMORY_MB_MAX = 1 << 30  # 1 PiB
MEMORY_BYTES_MAX = MEMORY_MB_MAX << 20
DISK_GB_MAX = 1_000_000_000
TIER_MAX = 100
PRICE_MAX = 1_000_000.0
PORT_MAX = 65_535
PIDS_MAX = 1 << 22  # the kernel's own limit
STOP_GRACE_SECONDS_MAX = 24 * 60 * 60
STOP_AFTER_SECONDS_MAX = 366 * 24 * 60 * 60
RETRIES_MAX = 1_000_000
SPEC_BYTES_MAX = 512 * 1024

WordT = TypeVar("WordT")

_PULL_POLICIES = {"": PullPolicy.IF_NOT_PRESENT} | {
    policy.value.lower(): policy for policy in PullPolicy
}
_RESTART_NAMES = {
    "": "unless-stopped",
    "no": "no",
    "always": "always",
    "on-failure": "on-failure",
    "unless-stopped": "unless-stopped",
}
_DEVICE = re.compile(r"[a-z]{1,8}[0-9]{0,3}")
_CREDENTIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def size(byte_count: int, *, most: int = SPEC_BYTES_MAX) -> None:
    if byte_count > most:
        mebibytes = byte_count / (1024 * 1024)
        raise InvalidError("spec", f"is {mebibytes:.1f} MiB; the limit is {most >> 10} KiB")


def number(value: int, path: str, *, most: int, least: int = 0) -> int:
    if not least <= value <= most:
        raise InvalidError(path, f"is {value}; expected {least} to {most}")
    return value


def word(text: str, known: Mapping[str, WordT], path: str, expected: str) -> WordT:
    """The value of a word, in any case. An empty word is valid only if the table has it."""
    found = known.get(text)
    if found is None:
        found = known.get(text.strip().lower())
    if found is None:
        raise InvalidError(path, f"{quoted(text)} is unknown; expected {expected}")
    return found


def networks(names: Iterable[str], path: str) -> tuple[str, ...]:
    """The networks that a workload joins, in its order."""
    found = tuple(
        label_id(name, "network name", field=f"{path}[{index}]") for index, name in enumerate(names)
    )
    if len(found) > NETWORKS_MAX:
        raise InvalidError(path, f"has {len(found)} networks: expected at most {NETWORKS_MAX}")
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise InvalidError(path, f"names {quoted(twice)} twice")
    return found


def restart_policy(text: str, path: str, *, retries_max: int = 0) -> RestartPolicy:
    """`no`, `always`, `on-failure`, `on-failure:N` or `unless-stopped`, in any case and with '_' for '-'."""
    plain, colon, count = text.strip().lower().replace("_", "-").partition(":")
    name = _RESTART_NAMES.get(plain)
    if name is None or (colon and not (name == "on-failure" and _is_count(count))):
        expected = "no, always, on-failure, on-failure:N or unless-stopped"
        raise InvalidError(path, f"{quoted(text)} is unknown; expected {expected}")
    if name != "on-failure":
        # Existing clients send a count with every policy; only on-failure uses it.
        return RestartPolicy(name)
    return RestartPolicy(name, number(int(count or retries_max), path, most=RETRIES_MAX))


def pull_policy(text: str, path: str) -> PullPolicy:
    plain = text.replace("-", "").replace("_", "")
    return word(plain, _PULL_POLICIES, path, "IfNotPresent, Always or Never")


def absolute_path(text: str, path: str) -> str:
    if not text.startswith("/"):
        raise InvalidError(
            path, f"invalid path {quoted(text)}: expected an absolute path that begins with /"
        )
    if "\0" in text or ".." in text.split("/"):
        expected = "expected a path without '..' segments and NUL characters"
        raise InvalidError(path, f"invalid path {quoted(text)}: {expected}")
    return text


def mount_point(text: str, path: str, taken: set[str]) -> str:
    """A path inside the container that no earlier mount uses; adds it to `taken`."""
    place = "/" + normpath(absolute_path(text, path)).strip("/")
    if place == "/":
        raise InvalidError(path, "is the root of the container; expected a path below it")
    if place in taken:
        raise InvalidError(path, f"{quoted(text)} is already used by another volume")
    taken.add(place)
    return text


def env(values: Mapping[str, str], path: str) -> dict[str, str]:
    if not values:
        return {}
    found = dict(values)
    for key, value in found.items():
        if not key:
            raise InvalidError(path, "has an empty name")
        if "=" in key or "\0" in key:
            raise InvalidError(
                f"{path}[{quoted(key)}]", "a name must not contain '=' or NUL characters"
            )
        if "\0" in value:
            raise InvalidError(f"{path}[{quoted(key)}]", "a value must not contain NUL characters")
    return found


def labels(values: Mapping[str, str], path: str) -> dict[str, str]:
    if not values:
        return {}
    found = dict(values)
    if "" in found:
        raise InvalidError(path, "has an empty name")
    return found


def texts(values: Iterable[str], path: str) -> tuple[str, ...]:
    found = tuple(values)
    for index, text in enumerate(found):
        if "\0" in text:
            raise InvalidError(f"{path}[{index}]", "must not contain NUL characters")
    return found


def image(text: str, path: str) -> str:
    if not text:
        raise InvalidError(path, "is empty; expected an image, for example nginx:1.27")
    if text.split() != [text] or "\0" in text:
        raise InvalidError(path, f"invalid image {quoted(text)}: expected a name without spaces")
    return text


def credential(text: str, path: str) -> str:
    """The name of a credential that is stored on the nodes, never the credential itself."""
    if text and not _CREDENTIAL.fullmatch(text):
        raise InvalidError(
            path, "invalid credential name: expected letters, digits, '.', '_' and '-'"
        )
    return text


def device(text: str, path: str) -> str:
    if text and not _DEVICE.fullmatch(text):
        problem = f"invalid device name {quoted(text)}: expected a name, for example vda"
        raise InvalidError(path, problem)
    return text


def mac_address(text: str, path: str) -> str:
    plain = text.lower()
    if plain and not _MAC.fullmatch(plain):
        raise InvalidError(
            path, f"invalid MAC address {quoted(text)}: expected six pairs, for example 52:54:00:…"
        )
    return plain


def ip_address(text: str, path: str) -> str:
    if text:
        try:
            ip_interface(text)
        except ValueError as err:
            raise InvalidError(
                path, f"invalid IP address {quoted(text)}: expected ADDRESS or ADDRESS/BITS"
            ) from err
    return text


def base64_text(text: str) -> str | None:
    """The decoded text of strict base64 (line breaks allowed), or None if it is not base64 of a text."""
    try:
        return b64decode("".join(text.split()), validate=True).decode()
    except (Base64Error, ValueError):
        return None


def quoted(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:40]!r}… ({len(text)} characters)"


def _is_count(text: str) -> bool:
    return whole_number(text) is not None
