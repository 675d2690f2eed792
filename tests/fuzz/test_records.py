"""Fuzzers of stored records: a damaged one is detected and named, and everything else works.

One record of a store with every type is damaged: in memory, at the start of a scheduler, under a leader, and
while a standby follows. Records that are held are never overwritten; when the value is restored, everything
is as before.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from builders import NOON
from fuzz.budget import inputs, rounds
from fuzz.damage import Damage, draw
from fuzz.services import contained_errors
from persys.errors import CompactedError
from persys.infra.clock import SystemClock
from persys.model.ids import WorkloadId
from persys.model.placement import Assignment
from persys.scheduler.state.cluster import ClusterState as Memory
from persys.scheduler.state.records import RECORDS, SINGLE_KEYS, type_of
from persys.scheduler.state.sync import follow, load
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Record, Snapshot, Unit, WatchEvent
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored.records import decode
from properties.scheduler.state.test_records import EXAMPLES, STORED
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node

WORKLOADS = ("w0", "w1", "w2", "w3")
NAMED_SETS = ("set", "set_revision")
SINGLE = frozenset(one.key for one in SINGLE_KEYS)
SECONDS_MAX = 60.0


def in_memory(cluster: Memory) -> dict[str, Any]:
    return {key: record for kind in RECORDS for key, record in kind.in_memory(cluster)}


def loaded(stored: Mapping[str, bytes]) -> Memory:
    cluster = Memory()
    load(cluster, snapshot_of(stored), lease_until=1.0, now=NOON)
    return cluster


def snapshot_of(stored: Mapping[str, bytes]) -> Snapshot:
    return Snapshot(1, tuple(Record(key, stored[key], 1) for key in sorted(stored)))


def test_a_damaged_record_is_named_and_all_others_are_loaded() -> None:
    valid = in_memory(loaded(STORED))
    for one in inputs("record"):
        with one as random:
            damage = draw(random, STORED, random.choice(sorted(STORED)))
            cluster = loaded({**STORED, damage.key: damage.after})
            assert [held.key for held in cluster.quarantine] == [damage.key], damage
            assert [held.replaceable for held in cluster.quarantine] == [not damage.is_held]
            check_others(in_memory(cluster), valid, damage)
            followed = loaded(STORED)
            follow(followed, [WatchEvent(damage.key, damage.after, 2)], lease_until=1.0, now=NOON)
            assert in_memory(followed) == in_memory(cluster), damage
            assert list(followed.quarantine) == list(cluster.quarantine)
            check_repair(followed, damage, valid)


def check_repair(followed: Memory, damage: Damage, sound: dict[str, Any]) -> None:
    change = WatchEvent(damage.key, damage.before, 3)
    with pytest.raises(CompactedError, match=re.escape(damage.key)):
        follow(followed, [change], lease_until=1.0, now=NOON)
    load(followed, snapshot_of(STORED), lease_until=1.0, now=NOON)
    assert len(followed.quarantine) == 0
    assert without_epochs(in_memory(followed)) == without_epochs(sound), damage


def without_epochs(found: dict[str, Any]) -> dict[str, Any]:
    """Epochs assumed while the counter was damaged stay: epochs never decrease."""
    return {key: record for key, record in found.items() if key != keys.EPOCHS}


def check_others(found: dict[str, Any], sound: dict[str, Any], damage: Damage) -> None:
    """State that depends on the damaged record may be absent; everything else is unchanged."""
    assert found.keys() <= sound.keys() | {damage.key}
    for key in found.keys() - {damage.key}:
        assert found[key] == sound[key], damage
    name = damage.key.rpartition("/")[2]
    missing = {key for key in sound.keys() - found.keys() if not key.endswith(f"/{name}")}
    assert missing <= {damage.key}, damage


class Scenario:
    """A scheduler on a store with a record of every type, and nodes that outlive it."""

    def __init__(self, cluster: Cluster, nodes: list[Node]) -> None:
        self.cluster = cluster
        self.control = cluster.control
        self._nodes = nodes
        self.stored: dict[str, bytes] = {}
        self._copies: dict[str, Any] = {}

    async def prepare(self) -> None:
        control = self.control
        self._nodes[0].agent.behaviour.failures["broken"] = ("IMAGE_NOT_FOUND", "no such image")
        self._nodes[1].agent.behaviour.failures["broken"] = ("IMAGE_NOT_FOUND", "no such image")
        for name in (*WORKLOADS, "broken"):
            await control.apply(name)
        await control.stub.PutSecret(pb.PutSecretRequest(name="db", value=b"one"), timeout=10)
        for name in WORKLOADS:
            await control.until(name, "Running", within=SECONDS_MAX)
        await control.until("broken", "Failed", within=SECONDS_MAX)
        await self.cluster.stop()
        found = await self.cluster.store.store.read("/")
        self.stored = {one.key: one.value for one in found.records}
        created = {name_of(key) for key in self.stored}
        for name, (key, _) in EXAMPLES.items():
            if name in created:
                continue
            if name in NAMED_SETS:  # the id of a set is never the id of a workload
                self.stored[key] = STORED[key]
            else:
                self.stored[key.replace("/web", "/w0")] = STORED[key].replace(b'"web"', b'"w0"')
        self.stored = {key: recoded(key, value) for key, value in self.stored.items()}
        self._copies = {node.id: deepcopy(node.agent.copies) for node in self._nodes}

    async def reset(self, damage: Damage | None) -> None:
        """The prepared store with the damage; no scheduler runs."""
        wanted = dict(self.stored)
        if damage is not None:
            wanted[damage.key] = damage.after
        store = self.cluster.store.store
        there = {one.key for one in (await store.read("/")).records}
        await store.commit([Unit(deletes=sorted(there - wanted.keys()))])
        await store.commit([Unit(puts={key: value}) for key, value in wanted.items()])
        for node in self._nodes:
            node.agent.copies = deepcopy(self._copies[node.id])

    def others(self, damaged_key: str) -> list[str]:
        """Workloads that depend neither on this record nor on the record of their node."""
        nodes = {
            name: decode(self.stored[keys.assignment_key(WorkloadId(name))], Assignment).node_id
            for name in WORKLOADS
        }
        return [
            name
            for name in WORKLOADS
            if name not in damaged_key and damaged_key != keys.node_key(nodes[name])
        ]

    async def value_of(self, key: str) -> bytes | None:
        found = await self.cluster.store.store.get(key)
        return found.value if found is not None else None


def recoded(key: str, value: bytes) -> bytes:
    """The changed record with a valid checksum."""
    from zlib import crc32

    begin = value.index(b",") + 1
    body = value[begin:]
    return b'{"crc":"%08x",' % crc32(body) + body


def name_of(key: str) -> str:
    kind = type_of(key)
    return kind.name if kind is not None else key


@asynccontextmanager
async def a_scenario() -> AsyncIterator[Scenario]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        scenario = Scenario(cluster, [await cluster.join("n1"), await cluster.join("n2")])
        await scenario.prepare()
        yield scenario
    await store.store.close()


def a_damage(random: Random, stored: Mapping[str, bytes], seed: int) -> Damage:
    """Each type is used in turn."""
    kind = RECORDS[seed % len(RECORDS)]
    found = [key for key in stored if type_of(key) is kind and key not in SINGLE]
    return draw(random, stored, random.choice(found))


async def test_a_scheduler_starts_beside_a_damaged_record_and_serves_all_others() -> None:
    for one_round in rounds("stored_records", size=60, least=5, seconds_max=30):
        with one_round:
            async with a_scenario() as scenario:
                for one in one_round:
                    with one as random:
                        damage = a_damage(random, scenario.stored, one.seed)
                        await check_damage(scenario, damage)


async def check_damage(scenario: Scenario, damage: Damage) -> None:
    cluster = scenario.cluster
    await scenario.reset(damage)
    with capture_logs() as lines:
        await cluster.start()
    assert damage.key in named_in(lines), f"{damage} is not named"
    if damage.is_held:
        assert damage.key in await quarantined(cluster), damage
    if damage.key == keys.EPOCHS and damage.is_held:
        # The leader that wrote it knows the epochs in use: without them nothing is placed.
        refused = await cluster.control.apply("fresh")
        assert damage.key in refused.error_message
    else:
        await check_work(cluster, scenario.others(damage.key))
    if damage.is_held:
        assert await scenario.value_of(damage.key) == damage.after, f"{damage} was overwritten"
        assert damage.key in await quarantined(cluster), damage
    errors = await contained_errors(cluster.settings.metrics_port)
    assert [line for line in errors if 'where="record"' not in line] == [], damage
    await cluster.stop()
    await cluster.store.store.commit([Unit(puts={damage.key: damage.before})])
    with capture_logs() as lines:
        await cluster.start()
    assert named_in(lines) == [], f"{damage} is still named"
    for name in [name for name in WORKLOADS if name in damage.key]:
        await cluster.control.until(name, "Running", within=SECONDS_MAX)
    await cluster.stop()


async def check_work(cluster: Cluster, others: list[str]) -> None:
    """Workloads that do not depend on the damaged record are placed, updated and deleted."""
    control = cluster.control
    updated, deleted, *_ = others
    assert (await control.apply("fresh")).success
    assert (await control.apply(updated, image="nginx:2")).success
    assert (await control.delete(deleted)).success
    await control.until("fresh", "Running", within=SECONDS_MAX)
    await control.until(updated, "Running", within=SECONDS_MAX)
    await control.until_gone(deleted, within=SECONDS_MAX)


def named_in(lines: Any) -> list[str]:
    return [line["key"] for line in lines if line.get("where") == "record"]


async def quarantined(cluster: Cluster) -> list[str]:
    view = await cluster.control.stub.GetDiagnostics(pb.GetDiagnosticsRequest(), timeout=10)
    return [one.key for one in view.quarantined]
