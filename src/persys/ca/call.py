"""An authorized request to the CA, and its response."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from persys.ca.authority import Holder
from persys.core.numbers import whole_number
from persys.errors import InvalidError

LIST_MAX = 10_000
_LIST_USUAL = 1_000
JSON = "application/json"


class Call(Struct, frozen=True):
    body: bytes
    query: Mapping[str, str]
    where: str  # address of the client
    holder: Holder | None  # the client, if it presented a valid certificate

    @property
    def asker(self) -> Holder:
        assert self.holder is not None, "the route requires a certificate"
        return self.holder

    @property
    def who(self) -> str:
        named = "unknown" if self.holder is None else str(self.holder.identity)
        return f"{named}, from {self.where}"

    def limit(self) -> int:
        text = self.query.get("limit", str(_LIST_USUAL))
        limit = whole_number(text)
        if limit is None or not 1 <= limit <= LIST_MAX:
            raise InvalidError("limit", f"invalid limit {text[:40]!r}: expected 1 to {LIST_MAX}")
        return limit


class Answer(Struct, frozen=True):
    body: bytes
    kind: str = JSON


Handler = Callable[[Call], Answer]
