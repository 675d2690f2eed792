"""Any interleaving of acquire, release and cancel keeps the queue consistent."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import times
from persys.infra.aio.keyed_lock import KeyedLock


@dataclass
class Holders:
    locks: KeyedLock[str] = field(default_factory=KeyedLock)
    inside: list[int] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    gates: list[asyncio.Event] = field(default_factory=list)

    async def visit(self, number: int) -> None:
        async with self.locks.hold("web"):
            self.inside.append(number)
            self.entered.append(number)
            assert len(self.inside) == 1, "two at once"
            try:
                await self.gates[number].wait()
            finally:
                self.inside.remove(number)


ASKED_FIRST = 3
NUMBERS = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.just(0)),
        st.tuples(st.just("finish"), NUMBERS),
        st.tuples(st.just("cancel"), NUMBERS),
        st.tuples(st.just("run"), st.just(0)),  # one round of the loop
    ),
    max_size=12,
)


@settings(max_examples=times(6), deadline=None)
@given(STEPS)
def test_the_lock_is_never_lost_held_twice_or_granted_out_of_order(
    plan: list[tuple[str, int]],
) -> None:
    asyncio.run(run_plan([("ask", 0)] * ASKED_FIRST + [("run", 0)] + plan))


async def run_plan(plan: list[tuple[str, int]]) -> None:
    holders = Holders()
    visits: list[asyncio.Task[None]] = []
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for step, number in plan:
            match step:
                case "ask":
                    holders.gates.append(asyncio.Event())
                    visits.append(group.create_task(holders.visit(len(visits))))
                case "finish" if number < len(visits):
                    holders.gates[number].set()
                case "cancel" if number < len(visits):
                    visits[number].cancel()
                case "run":
                    await asyncio.sleep(0)
        for gate in holders.gates:
            gate.set()
        last = group.create_task(holders.visit(len(visits)))  # who comes last is let in at the end
        holders.gates.append(asyncio.Event())
        holders.gates[-1].set()
        await last

    assert holders.entered == sorted(holders.entered)
    assert holders.entered[-1] == len(visits)
    stayed = [number for number, visit in enumerate(visits) if not visit.cancelled()]
    assert set(stayed) <= set(holders.entered)
