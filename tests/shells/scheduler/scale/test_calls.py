"""Every RPC that changes something, on a scheduler with many records of every type.

No transaction grows with their number, and nothing else is delayed for long while the call is served.
"""

import pytest

from persys.infra.encryption import EncryptionKey
from persys.model.placement import EpochCounter
from persys.scheduler.state.records import RECORDS
from persys.wire.methods import METHODS
from shells.scheduler.scale.conftest import until_idle
from shells.scheduler.scale.many_records import many_records
from shells.scheduler.scale.measured import MeasuredStore, bounded
from shells.scheduler.scale.mutations import CASES, LargeScheduler

# They replace the content of the store: see test_recoveries.py.
RECOVERIES = frozenset({"RestoreSnapshot", "RebuildFromAgents", "AcceptEmpty"})


def test_every_rpc_that_changes_something_has_a_case() -> None:
    mutating = {row.name for row in METHODS.values() if row.mutating}

    assert mutating == CASES.keys() | RECOVERIES


def test_every_record_type_is_there_in_number() -> None:
    found = many_records(20, EncryptionKey(bytes(32)))
    for kind in RECORDS:
        there = sum(isinstance(record, kind.struct) for record in found.values())
        assert there >= 20 or kind.struct is EpochCounter, kind.name


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", CASES)
async def test_the_call_succeeds_in_bounded_transactions_and_steps(
    large: LargeScheduler, method: str
) -> None:
    store = large.cluster.store
    assert isinstance(store, MeasuredStore)

    with bounded(store):
        await CASES[method](large)
        await until_idle(large.cluster)
