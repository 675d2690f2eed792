"""The garbage inventories of all runtimes as one. If one does not respond, there is no inventory."""

from collections.abc import Mapping

from persys.agent.journal import Image
from persys.agent.ports import Leftovers
from persys.core.agent.garbage import ImageUse, Item, Kind


class AllLeftovers:
    """Implements agent.ports.Leftovers."""

    def __init__(self, by_kind: Mapping[frozenset[Kind], Leftovers]) -> None:
        self._by_kind = by_kind

    async def inventory(self) -> list[Item]:
        return [item for each in self._by_kind.values() for item in await each.inventory()]

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        return [use for each in self._by_kind.values() for use in await each.images(fetched)]

    async def remove(self, item: Item) -> str:
        for kinds, each in self._by_kind.items():
            if item.kind in kinds:
                return await each.remove(item)
        return f"no runtime on this node can remove a {item.kind}"
