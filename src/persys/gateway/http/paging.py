"""Paging of lists: `limit` and `cursor`.

A cursor is the key of the last item of a page, so items created or deleted between two pages shift nothing.
Events start with the newest page and continue to older ones.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from multidict import MultiMapping

from persys.core.numbers import whole_number
from persys.errors import InvalidError

LIMIT_MAX = 1000

Key = tuple[str | int, ...]


class Listed(NamedTuple):
    """The list field of a response, and the key by which it is ordered."""

    field: str
    key: Callable[[Any], Key]
    newest_first: bool = False


LISTS: Mapping[str, Listed] = {
    "ListWorkloads": Listed("workloads", lambda one: (one.workload_id,)),
    "ListNodes": Listed("nodes", lambda one: (one.node_id,)),
    "ListEvents": Listed("events", lambda one: (one.sequence,), newest_first=True),
    "ListDrifts": Listed("drifts", lambda one: (one.node_id, one.workload_id, one.type)),
    "ListImages": Listed("images", lambda one: (one.name, one.sha256)),
    "ListVolumes": Listed("volumes", lambda one: (one.node_id, one.workload_id, one.name)),
    "ListTokens": Listed("tokens", lambda one: (one.token_id,)),
    "ListSecrets": Listed("secrets", lambda one: (one.name,)),
    "ListNodePools": Listed("pools", lambda one: (one.spec.pool_id,)),
    "ListSets": Listed("sets", lambda one: (one.spec.set_id,)),
    "ListJobs": Listed("jobs", lambda one: (one.spec.job_id,)),
    "ListServices": Listed("services", lambda one: (one.spec.service_id,)),
}


class Page(NamedTuple):
    limit: int
    after: Key | None


def requested_page(rpc: str, query: MultiMapping[str]) -> Page | None:
    """The requested page. None: the whole list. Raises InvalidError."""
    if rpc not in LISTS or ("limit" not in query and "cursor" not in query):
        return None
    text = query.get("limit", str(LIMIT_MAX))
    limit = whole_number(text) or 0
    if not 1 <= limit <= LIMIT_MAX:
        if rpc == "ListEvents" and "cursor" not in query:
            return None  # ListEvents has its own limit field, which accepts any number
        raise InvalidError("limit", f"{text[:40]!r}: expected 1 to {LIMIT_MAX}")
    return Page(limit, _read(query["cursor"]) if "cursor" in query else None)


def cut(rpc: str, answer: Any, page: Page) -> str:
    """Reduce the list in the response to the page. Returns the next cursor, or ""."""
    listed = LISTS[rpc]
    items = getattr(answer, listed.field)
    try:
        found = sorted(
            (
                one
                for one in items
                if page.after is None or _is_beyond(listed, listed.key(one), page.after)
            ),
            key=listed.key,
            reverse=listed.newest_first,
        )
    except TypeError as err:  # a cursor of another list
        raise InvalidError("cursor", "expected a cursor of this list") from err
    kept, rest = found[: page.limit], found[page.limit :]
    cursor = _write(listed.key(kept[-1])) if rest else ""
    if listed.newest_first:
        kept.reverse()  # within a page the oldest first, as ListEvents returns them
    answer.ClearField(listed.field)
    getattr(answer, listed.field).extend(kept)
    return cursor


def _is_beyond(listed: Listed, key: Key, after: Key) -> bool:
    return key < after if listed.newest_first else key > after


def _write(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def _read(cursor: str) -> Key:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        key: Key = msgspec.json.decode(text, type=tuple[str | int, ...])
    except (binascii.Error, ValueError, msgspec.DecodeError) as err:
        raise InvalidError("cursor", "expected a next_cursor of an earlier response") from err
    return key
