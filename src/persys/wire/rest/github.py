"""The fields of GitHub webhook deliveries that are used here."""

from typing import TypeVar

import msgspec
from msgspec import Struct, field

from persys.core.gitops import Push, branch_of, repository_name
from persys.errors import InvalidError

T = TypeVar("T")


class RepositoryPayload(Struct):
    full_name: str
    clone_url: str = ""
    default_branch: str = ""
    pushed_at: int | str = 0  # Unix seconds in a push event


class Delivered(Struct):
    """The payload of any repository event."""

    repository: RepositoryPayload


class PushPayload(Struct):
    ref: str
    repository: RepositoryPayload
    after: str = ""
    is_deleted: bool = field(default=False, name="deleted")


def read_delivery(body: bytes) -> RepositoryPayload:
    """Raises InvalidError."""
    return _read(body, Delivered).repository


def read_push(body: bytes, delivery: str) -> Push | None:
    """The push, or None for a tag or a deleted branch. Raises InvalidError."""
    payload = _read(body, PushPayload)
    branch = branch_of(payload.ref)
    if not branch or payload.is_deleted:
        return None
    repository = payload.repository
    return Push(
        repository_name(repository.clone_url or repository.full_name),
        branch,
        branch == repository.default_branch,
        payload.after,
        delivery,
    )


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise InvalidError("body", str(err)) from err
