"""Faults at call sites: which call fails, how, and for which workload.

The drivers of the tests (file system, Docker, libvirt, programs) ask the injector at each call. It finds the
site by the stack and returns the fault if this call must fail. A call for a workload fails only for the
workload `bad`; a call for no workload fails as long as the fault is active.
"""

import asyncio
import errno
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from faults.sites import Site, site_at
from persys.agent.journal.records import Entry
from persys.model.workload import Order

BAD, GOOD = "bad", "good"
INJECTED = "injected by the test"

HANG, OVERSIZED, REFUSED = "hang", "oversized", "refused"
# MemoryError is raised after the call: its effect is there, its result is lost.
AFTERWARDS = "MemoryError"
FAULTS: dict[str, Callable[[], Exception]] = {
    "OSError": lambda: OSError(errno.ENOSPC, f"No space left on device ({INJECTED})", "/x"),
    "RuntimeError": lambda: RuntimeError(INJECTED),
    "ValueError": lambda: ValueError(INJECTED),
    AFTERWARDS: lambda: MemoryError(INJECTED),
}
# A hang, an oversized result and a failure of the driver's own type are created by the driver.
KINDS = (*FAULTS, HANG, OVERSIZED, REFUSED)


class Injector:
    def __init__(self, sites: dict[str, Site]) -> None:
        """`sites` by their names: faults are switched on by name."""
        self._sites = sites
        self._site: Site | None = None
        self._faults: dict[Site, str] = {}
        self.struck = 0
        self.reached: Counter[Site] = Counter()
        self.unlisted: set[str] = set()  # calls that are not in the table
        self.is_ending = False  # calls of an agent that stops are ignored
        self.mended = asyncio.Event()
        self.mended.set()

    def switch_on(self, site: str, kind: str, *triggers: tuple[str, str]) -> None:
        """Also with the faults that lead to this call, if it is not made otherwise."""
        self._site = self._sites[site]
        self._faults = {self._sites[name]: fault for name, fault in (*triggers, (site, kind))}
        self.struck = 0
        self.mended.clear()

    def switch_off(self) -> None:
        self._faults = {}
        self.mended.set()

    def fault_of(self, driver: str, *words: object, callee: str = "") -> str:
        """The kind of fault of the call in progress; "" if it succeeds. `words` are its arguments.

        With `callee`, only a site that calls this counts.
        """
        frame = sys._getframe(1)
        site = site_at(frame, driver)
        if self.is_ending or (callee and (site is None or site.callee != callee)):
            return ""
        if site is None:
            self.unlisted.add(f"{driver}: {_shown(frame)}")
            return ""
        self.reached[site] += 1
        if site not in self._faults or not concerns_bad(frame, words):
            return ""
        self.struck += site == self._site
        return self._faults[site]

    def raise_if(self, kind: str) -> None:
        if kind in FAULTS and kind != AFTERWARDS:
            raise FAULTS[kind]()

    def raise_afterwards_if(self, kind: str) -> None:
        if kind == AFTERWARDS:
            raise FAULTS[kind]()


def concerns_bad(frame: FrameType | None, words: tuple[object, ...]) -> bool:
    """Whether the call is for the failing workload, or for no workload."""
    named = next(_workloads_of(frame), "")
    text = named or " ".join(str(word) for word in words)
    return GOOD not in text


def _workloads_of(frame: FrameType | None) -> Iterator[str]:
    """The workload ids in the variables of the functions on the stack, innermost first."""
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if (found := _workload_of(value)) in (BAD, GOOD):
                yield found
        frame = frame.f_back


def _workload_of(value: Any) -> str:
    match value:
        case str():
            return value
        case Order():
            return value.workload_id
        case Entry():
            return value.order.workload_id
        case _:
            return ""


def _shown(frame: FrameType | None) -> str:
    """The origin of the call: the innermost functions of the agent."""
    found: list[str] = []
    while frame is not None and len(found) < 6:
        if "persys/agent" in frame.f_code.co_filename:
            found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found)
