"""A run under crashes and failures: attempts are bounded, and it always ends."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from job_builders import NOON, a_run
from persys.core.jobs import indexes
from persys.core.jobs.run import CHANGES_MAX, decide_run
from persys.core.jobs.situation import (
    Attempt,
    AttemptKey,
    AttemptState,
    RunDecision,
    RunSituation,
)
from persys.model.job import Run, RunState

STEPS_MAX = 1000
_ENDS = (
    Attempt(AttemptState.SUCCEEDED),
    Attempt(AttemptState.SUCCEEDED),
    Attempt(AttemptState.FAILED, exit_code=1, reason="exited with 1"),
    Attempt(AttemptState.FAILED, exit_code=7, reason="exited with 7"),
    Attempt(AttemptState.LOST, reason="node n1 is lost"),
)


@dataclass
class World:
    """The workloads of a run, and a scheduler that may crash after any change."""

    run: Run
    random: Random
    crashes: float
    now: datetime = NOON
    workloads: dict[AttemptKey, Attempt] = field(default_factory=dict)
    executions: Counter[int] = field(default_factory=Counter)
    created: set[AttemptKey] = field(default_factory=set)

    def situation(self) -> RunSituation:
        return RunSituation(
            self.run,
            {
                member.index: self.workloads[key]
                for member in self.run.members
                if (key := AttemptKey(member.index, member.attempts)) in self.workloads
            },
        )

    def step(self) -> RunDecision:
        decision = decide_run(self.situation(), self.now)
        assert decision == decide_run(self.situation(), self.now)
        self.check(decision)
        if self.crashed():
            return decision
        self.run = decision.record
        for key in decision.delete:
            if self.crashed():
                return decision
            self.workloads[key] = Attempt(AttemptState.DELETING)
        for key in decision.stop:
            if self.crashed():
                return decision
            self.workloads[key] = Attempt(AttemptState.STOPPED)
        for key in decision.create:
            if self.crashed():
                return decision
            self.create(key)
        return decision

    def create(self, key: AttemptKey) -> None:
        assert key not in self.created, "an attempt is created once"
        recorded = {member.index: member.attempts for member in self.run.members}
        assert recorded[key.index] == key.attempt, "an attempt is recorded before it is created"
        self.created.add(key)
        self.executions[key.index] += 1
        self.workloads[key] = Attempt(AttemptState.WAITING)

    def crashed(self) -> bool:
        return self.random.random() < self.crashes

    def check(self, decision: RunDecision) -> None:
        record = decision.record
        changes = len(decision.create) + len(decision.stop) + len(decision.delete)
        assert changes <= CHANGES_MAX
        assert len(record.members) <= record.parallelism
        ended = [*indexes.all_of(record.succeeded), *indexes.all_of(record.failed)]
        known = ended + [member.index for member in record.members]
        if record.state is RunState.RUNNING:
            assert sorted(known) == list(range(record.next_index)), "each index is in one state"
        assert record.next_index <= record.completions
        assert not (decision.create and record.state is not RunState.RUNNING)

    def happen(self) -> None:
        """Workloads start, end, or are gone after their deletion."""
        for key, attempt in list(self.workloads.items()):
            if attempt.state is AttemptState.DELETING and self.random.random() < 0.5:
                del self.workloads[key]
            elif attempt.state is AttemptState.WAITING:
                self.workloads[key] = Attempt(AttemptState.RUNNING)
            elif attempt.state is AttemptState.RUNNING and self.random.random() < 0.5:
                self.workloads[key] = self.random.choice(_ENDS)
        self.now += timedelta(seconds=self.random.choice((0, 1, 30)))


# Not a random that hypothesis controls: one that always crashes never gets anywhere.
worlds = st.integers(0, 2**32).map(Random)
runs = st.builds(
    a_run,
    completions=st.integers(1, 12),
    parallelism=st.integers(1, 6),
    retries=st.integers(0, 3),
    deadline_seconds=st.sampled_from([0, 0, 60]),
    fail_on=st.sampled_from([(), (7,)]),
)


@given(runs, worlds, st.sampled_from([0.0, 0.1, 0.4]))
def test_a_run_ends_and_no_index_has_more_attempts_than_allowed(
    run: Run, random: Random, crashes: float
) -> None:
    world = World(run, random, crashes)
    for _ in range(STEPS_MAX):
        world.step()
        world.happen()
        if world.run.state is not RunState.RUNNING and not in_progress(world):
            break

    assert world.run.state is not RunState.RUNNING
    assert not in_progress(world), "what an ended run left is stopped"
    assert all(count <= run.retries + 1 for count in world.executions.values())
    succeeded = indexes.size(world.run.succeeded) == run.completions
    assert (world.run.state is RunState.SUCCEEDED) == succeeded
    assert world.run.ended_at is not None
    assert bool(world.run.reason) == (world.run.state is RunState.FAILED)


@given(runs, worlds, st.integers(0, 30), st.integers(0, 30))
def test_after_a_recovery_nothing_is_created_and_the_run_ends(
    run: Run, random: Random, before: int, lost: int
) -> None:
    world = World(run, random, crashes=0.1)
    for _ in range(before):
        world.step()
        world.happen()
    if world.run.state is RunState.RUNNING:
        world.run = replace(world.run, recovered_at=world.now)
    for key in random.sample(sorted(world.workloads, key=repr), min(lost, len(world.workloads))):
        del world.workloads[key]  # the snapshot, or its node, does not have it
    created = set(world.created)
    for _ in range(STEPS_MAX):
        world.step()
        world.happen()
        if world.run.state is not RunState.RUNNING and not in_progress(world):
            break

    assert world.run.state is not RunState.RUNNING
    assert world.created == created


def in_progress(world: World) -> bool:
    """Also an attempt that the record does not know any more."""
    return any(attempt.state.in_progress for attempt in world.workloads.values())


index_sets = st.sets(st.integers(0, 60))


@given(index_sets, index_sets)
def test_ranges_are_the_set_of_their_indexes(some: set[int], others: set[int]) -> None:
    ranges = indexes.added(indexes.added((), some), others)

    assert list(indexes.all_of(ranges)) == sorted(some | others)
    assert indexes.size(ranges) == len(some | others)
    assert all(indexes.contains(ranges, index) == (index in some | others) for index in range(62))
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
