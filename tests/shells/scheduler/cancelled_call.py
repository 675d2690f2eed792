"""Cancels a call at every await: it must change everything or nothing."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from cancellation import Moment
from persys.scheduler.state.sync import encoded, in_snapshot
from persys.store import keys
from persys.wire.methods import METHODS, Audit
from shells.scheduler.calls import CALLS, World
from shells.scheduler.harness import eventually


async def nothing_else() -> dict[str, object]:
    return {}


class CallCancellation:
    """One RPC, called repeatedly, each time with a unique name.

    `beside` returns what a call changes outside the scheduler.
    """

    def __init__(
        self,
        world: World,
        name: str,
        calling: Callable[[str], Awaitable[Any]],
        *,
        cancelled: Callable[[Moment, str], Awaitable[bool]],
        beside: Callable[[], Awaitable[dict[str, object]]] = nothing_else,
    ) -> None:
        self._world = world
        self._method = METHODS[name]
        self._call = CALLS[name]
        self._calling = calling
        self._cancelled = cancelled
        self._beside = beside
        self._number = 0

    async def complete(self) -> frozenset[str]:
        """What the call changes when it is not cancelled."""
        own = await self._prepared()
        before = await self._state()
        await self._calling(own)
        await self.settled()
        changed = frozenset[str]()
        for _ in range(3):  # until nothing else follows
            await asyncio.sleep(0.1)
            changed = changes(before, await self._state())
        return changed

    async def cancelled(self, moment: Moment, whole: frozenset[str]) -> bool:
        own = await self._prepared()
        before = await self._state()
        reached = await self._cancelled(moment, own)
        await self.settled()
        found: frozenset[str] = frozenset()

        async def is_all_or_nothing() -> bool:
            nonlocal found
            found = changes(before, await self._state())
            return found == whole or (reached and not found)

        await eventually(
            is_all_or_nothing,
            lambda: f"{sorted(found)} to be nothing or {sorted(whole)}: {moment}",
            within=5,
        )
        return reached

    async def _prepared(self) -> str:
        self._number += 1
        own = f"x{self._number}"
        await self._call.before(self._world, own)
        await self.settled()
        return own

    async def settled(self) -> None:
        """Wait until nothing is in progress and memory equals the store, unless that is empty."""
        app = self._world.app

        async def quiet() -> bool:
            if app.requests.count or app.committer.depth() or app.reconciler.depth():
                return False
            unreadable = {one.key for one in app.cluster.quarantine}
            stored = {k: v for k, v in (await self._records()).items() if k not in unreadable}
            return app.modes.is_frozen or stored == _lasting(encoded(app.cluster))

        await eventually(quiet, lambda: "memory and store to be the same")

    async def _records(self) -> dict[str, bytes]:
        stored = await self._world.cluster.store.read("/")
        return _lasting({one.key: one.value for one in stored.records})

    async def _state(self) -> dict[str, object]:
        """Everything that a call can change. An event that is written before the change does not count."""
        world = self._world
        found: dict[str, object] = dict(await self._records())
        found |= {f"image {name}": True for name in world.host.images}
        found |= {f"volume {name}": True for name in world.host.volumes}
        found["mode"] = world.app.modes.condition.mode
        if self._method.audit is not Audit.START:
            found["event"] = max(
                (
                    event.at
                    for _, event in world.app.cluster.events
                    if event.kind == self._call.event
                ),
                default=None,
            )
        return found | await self._beside()


def _lasting(found: dict[str, bytes]) -> dict[str, bytes]:
    """Without events and without the epoch counter: memory adds the first proof key to it."""
    return {
        key: value
        for key, value in found.items()
        if in_snapshot(key) and not key.startswith((keys.EVENTS, keys.EPOCHS))
    }


def changes(before: dict[str, object], after: dict[str, object]) -> frozenset[str]:
    """The difference, without the unique names.

    Epochs are reserved for many calls at once, so their counter does not depend on one of them.
    """
    found = {key for key in before | after if before.get(key) != after.get(key)} - {keys.EPOCHS}
    return frozenset(map(_without_name, found))


def _without_name(key: str) -> str:
    """Also without the time in the id of a run."""
    if key.startswith(keys.TOKENS):
        return keys.TOKENS
    return re.sub(r"-\d{14}", "", re.sub(r"\bx\d+", "x", key))
