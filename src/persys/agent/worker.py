"""One lane per workload: look, decide the next step, perform it, keep it, and look again until settled.

Everything that may have changed is only woken; what to do about it is decided from what is there. When a
runtime gives no answer the workload's state is unknown, nothing is undone, and it is looked at again later.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from persys.agent import failpoints
from persys.agent.journal import Entry
from persys.agent.ledger import Ledger
from persys.agent.probes import Probes
from persys.agent.state import State
from persys.agent.steps import Steps
from persys.core.convergence import STOPPED_ALONE, Artefact, Do, Settled, Step, next_step
from persys.core.report import describe
from persys.errors import ConflictError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.failpoints import passing
from persys.infra.lanes import Lanes
from persys.infra.turns import Turns
from persys.model.ids import WorkloadId
from persys.model.observation import Actual
from persys.model.order import Order
from persys.model.workload import Desired

# A container that needs more than this at one go is fighting with somebody: give way for a while.
STEPS_MAX = 25
# These leave the container as it is, so that there is no need to look again.
PREPARATIONS = frozenset({Step.PULL, Step.PREPARE_VOLUMES})
PATIENCE_MIN_SECONDS = 0.5
PATIENCE_MAX_SECONDS = 30.0


class Worker:
    def __init__(
        self,
        state: State,
        turns: Turns[WorkloadId],
        steps: Steps,
        probes: Probes,
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self._state = state
        self._turns = turns
        self._steps = steps
        self._probes = probes
        self._ledger = ledger
        self._clock = clock
        self._lanes: Lanes[WorkloadId] | None = None
        self._queued: dict[WorkloadId, None] = {}
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}
        self._patience: dict[WorkloadId, float] = {}
        # Whether the scheduler has been silent for longer than an order allows.
        self.is_alone: Callable[[Order], bool] = lambda _order: False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._lanes = Lanes(group, contain=nullcontext)
            for workload_id in self._queued:
                self._lanes.hand(workload_id, partial(self._converge, workload_id))
            await asyncio.Event().wait()

    def wake(self, workload_id: WorkloadId) -> None:
        """Look at this workload soon. Waking it twice before it is looked at is waking it once."""
        if workload_id in self._queued:
            return
        self._queued[workload_id] = None
        if self._lanes is not None:
            self._lanes.hand(workload_id, partial(self._converge, workload_id))

    def wake_all(self) -> None:
        for workload_id in self._state.entries:
            self.wake(workload_id)

    def supersede(self, workload_id: WorkloadId) -> None:
        """A newer order is in the journal: leave what can be left, and begin with the new one."""
        self._steps.interrupt(workload_id)
        self._patience.pop(workload_id, None)
        self.wake(workload_id)

    async def retry_failed(self, *, only_deletes: bool) -> None:
        """Let what failed for a passing reason be tried again at the next look."""
        for workload_id in list(self._state.entries):
            async with self._turns.of(workload_id):
                entry = self._state.entries.get(workload_id)
                if entry is None or (only_deletes and entry.order.desired is not Desired.DELETED):
                    continue
                self._ledger.pardon(entry)

    async def _converge(self, workload_id: WorkloadId) -> None:
        self._queued.pop(workload_id, None)
        self._cancel_timer(workload_id)
        try:
            for _ in range(STEPS_MAX):
                if not await self._advance(workload_id):
                    return
        except UnavailableError as err:
            await self._doubt(workload_id, str(err))
        self._lose_patience(workload_id)

    async def _advance(self, workload_id: WorkloadId) -> bool:
        """Look, and do the next thing. False if there is no more to do."""
        entry = self._state.entries.get(workload_id)
        if entry is None:
            return False
        artefact = await self._steps.inspect(entry)
        while True:
            entry = self._state.entries.get(workload_id)  # an order may have come meanwhile
            if entry is None:
                return False
            artefact = self._probes.seen(entry, artefact)
            outcome = next_step(
                entry.order,
                artefact,
                entry.progress,
                now=self._clock.now(),
                alone=self.is_alone(entry.order),
            )
            if not isinstance(outcome, Do):
                return not await self._settle(outcome, entry, artefact)
            await self._do(outcome, entry, artefact)
            if outcome.step not in PREPARATIONS:
                return True

    async def _do(self, todo: Do, seen: Entry, artefact: Artefact | None) -> None:
        workload_id, step = seen.order.workload_id, todo.step
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is None or entry.generation != seen.generation:
                return
            entry = await self._ledger.begin(entry, todo, artefact)
        if step is Step.START:
            passing(failpoints.LAUNCHING)
        began = self._clock.monotonic()
        try:
            failure = await self._steps.perform(step, entry, artefact)
        except ConflictError:
            return
        passing(failpoints.AFTER_STEP[step])
        async with self._turns.of(workload_id):
            current = self._state.entries.get(workload_id)
            if current is not None and current.generation == entry.generation:
                self._ledger.keep(current, step, failure, self._clock.monotonic() - began)

    async def _settle(self, settled: Settled, seen: Entry, artefact: Artefact | None) -> bool:
        """False if a newer order has come meanwhile."""
        workload_id = seen.order.workload_id
        log_tail = ""
        if settled.actual is Actual.FAILED:
            log_tail = await self._steps.log_tail(seen, artefact)
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is None or entry.generation != seen.generation:
                return False
            if settled.actual is Actual.ABSENT:
                await self._ledger.forget(entry)
                passing(failpoints.FORGOTTEN)
            elif await self._ledger.settle(entry, settled, _words(settled, artefact, log_tail)):
                passing(failpoints.SETTLED)
        self._patience.pop(workload_id, None)
        if settled.look_again_at is not None:
            wait = settled.look_again_at - self._clock.now()
            self._wake_later(workload_id, wait.total_seconds())
        return True

    async def _doubt(self, workload_id: WorkloadId, why: str) -> None:
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is not None:
                self._ledger.doubt(entry, why)

    def _lose_patience(self, workload_id: WorkloadId) -> None:
        seconds = self._patience.get(workload_id, PATIENCE_MIN_SECONDS)
        self._patience[workload_id] = min(2 * seconds, PATIENCE_MAX_SECONDS)
        self._wake_later(workload_id, seconds)

    def _wake_later(self, workload_id: WorkloadId, seconds: float) -> None:
        self._cancel_timer(workload_id)
        loop = asyncio.get_running_loop()
        self._timers[workload_id] = loop.call_later(max(0.0, seconds), self._ring, workload_id)

    def _ring(self, workload_id: WorkloadId) -> None:
        self._timers.pop(workload_id, None)
        self.wake(workload_id)

    def _cancel_timer(self, workload_id: WorkloadId) -> None:
        if (timer := self._timers.pop(workload_id, None)) is not None:
            timer.cancel()


def _words(settled: Settled, artefact: Artefact | None, log_tail: str) -> dict[str, str]:
    words = describe(artefact, log_tail=log_tail)
    if settled.code == STOPPED_ALONE:
        # It did not end by itself: with an exit code of 0 it would look like finished work.
        words.pop("container.exit_code", None)
    return words
