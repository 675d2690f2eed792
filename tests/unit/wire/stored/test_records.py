"""The format of stored records, and revisions."""

import json
from zlib import crc32

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from persys.errors import RefusedError
from persys.model.node import StoragePool
from persys.model.placement import Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    HealthCheck,
    HealthType,
    Network,
    Port,
    RestartPolicy,
    VMSpec,
)
from persys.wire.stored.records import NewerSchemaError, decode, encode
from persys.wire.stored.revision import revision_of


def test_a_record_has_its_checksum_and_schema_beside_its_fields() -> None:
    assert json.loads(encode(Resources(1, 2, 3))) == {
        "crc": "41d85421",
        "schema": 2,
        "cpu_millicores": 1,
        "memory_mb": 2,
        "disk_gb": 3,
    }


def test_a_record_of_the_first_schema_has_no_checksum_and_is_read() -> None:
    assert decode(b'{"schema":1,"cpu_millicores":5}', Resources) == Resources(5)


def test_a_record_of_the_first_schema_is_read_with_fields_in_any_order() -> None:
    assert decode(b'{"cpu_millicores": 5, "schema": 1}', Resources) == Resources(5)


def test_a_record_without_fields_is_read_again() -> None:
    class Empty(Struct):
        pass

    assert decode(encode(Empty()), Empty) == Empty()


def test_a_record_of_a_newer_version_is_refused() -> None:
    with pytest.raises(RefusedError, match="stored Resources has schema 3"):
        decode(b'{"schema":3,"cpu_millicores":5}', Resources)


def test_a_newer_schema_number_caused_by_a_flipped_bit_is_damage() -> None:
    stored = encode(Resources(1, 2, 3)).replace(b'"schema":2', b'"schema":3')

    with pytest.raises(RefusedError, match="checksum does not match") as refused:
        decode(stored, Resources)
    assert not isinstance(refused.value, NewerSchemaError)


def test_an_intact_record_of_a_newer_version_is_refused() -> None:
    body = b'"schema":3,"cpu_millicores":5}'

    with pytest.raises(NewerSchemaError, match="schema 3"):
        decode(b'{"crc":"%08x",' % crc32(body) + body, Resources)


def test_a_record_of_the_current_schema_without_a_checksum_is_refused() -> None:
    with pytest.raises(RefusedError, match="checksum"):
        decode(b'{"schema":2,"cpu_millicores":5}', Resources)


def test_every_flipped_bit_is_detected() -> None:
    stored = encode(StoragePool("fast", "local", 40))

    for position in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(RefusedError, match="StoragePool"):
            decode(bytes(damaged), StoragePool)


def test_every_truncation_is_detected() -> None:
    stored = encode(StoragePool("fast", "local", 40))

    for length in range(len(stored)):
        with pytest.raises(RefusedError, match="StoragePool"):
            decode(stored[:length], StoragePool)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"cpu_millicores":5}',
        b'{"schema":"x"}',
        b'{"schema":1,"cpu_millicores":"five"}',
        b"\xff",
    ],
)
def test_bytes_that_are_not_a_record_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match="Resources"):
        decode(data, Resources)


def test_invalid_utf8_is_refused() -> None:
    with pytest.raises(RefusedError, match="StoragePool"):
        decode(b'{"schema":1,"name":"\xff"}', StoragePool)


def test_a_revision_does_not_change_from_one_version_to_the_next() -> None:
    spec = ContainerSpec("nginx", env={"B": "2", "A": "1"}, ports=(Port(80, 8080),))

    assert revision_of(spec, Resources(100, 64), {"team": "a"}) == "0f5a90d60ee27b7c"


def test_a_vm_without_a_health_check_keeps_the_revision_of_earlier_versions() -> None:
    spec = VMSpec(
        2,
        2048,
        disks=(Disk(device="vda", size_gb=10),),
        os_image="debian-12",
        name="db",
        networks=(Network("default", dhcp=True),),
        restart=RestartPolicy("on-failure", 3),
    )
    known = "07b74a5fa19808bd"

    assert revision_of(spec, Resources(2000, 2048, 10), {"team": "a"}) == known
    stored = json.loads(msgspec.json.encode(spec))
    del stored["health"]  # as written by an earlier version
    assert msgspec.convert(stored, VMSpec) == spec
    checked = replace(spec, health=HealthCheck(HealthType.TCP, port=22))
    assert revision_of(checked, Resources(2000, 2048, 10), {"team": "a"}) != known


def test_a_revision_changes_with_every_field() -> None:
    spec = ContainerSpec("nginx")
    revisions = {
        revision_of(spec, Resources(), {}),
        revision_of(ContainerSpec("nginx:2"), Resources(), {}),
        revision_of(ContainerSpec("nginx", privileged=True), Resources(), {}),
        revision_of(ContainerSpec("nginx", ports=(Port(80),)), Resources(), {}),
        revision_of(ContainerSpec("nginx", ports=(Port(80, protocol="udp"),)), Resources(), {}),
        revision_of(ContainerSpec("nginx", command=("a", "b")), Resources(), {}),
        revision_of(ContainerSpec("nginx", args=("a", "b")), Resources(), {}),
        revision_of(spec, Resources(1), {}),
        revision_of(spec, Resources(0, 1), {}),
        revision_of(spec, Resources(), {"a": ""}),
        revision_of(ComposeSpec(), Resources(), {}),
    }

    assert len(revisions) == 11


def test_networks_change_the_revision_and_their_absence_does_not() -> None:
    spec = ContainerSpec("nginx")
    plain = revision_of(spec, Resources(), {})

    assert revision_of(spec, Resources(), {}, networks=()) == plain
    assert revision_of(spec, Resources(), {}, networks=("backend",)) != plain
