"""Fuzzer of disk files of users: every reference to another file that QEMU would open is detected."""

import json
import subprocess
from pathlib import Path
from random import Random

import pytest

from fuzz.budget import inputs
from fuzz.mutation import bytes_like
from persys.agent.runtimes.vm.libvirt import VmError
from persys.agent.runtimes.vm.storage.qemu_img import backing_chain
from persys.core.agent.storage import (
    HEAD_BYTES,
    QCOW2,
    backing_of,
    format_of,
    has_external_data,
)

HEADER_BYTES = 160  # version 3 has 104 or 112, followed by extensions
# Offset and length of the numbers in the header: version, backing file, incompatible features, length, …
NUMBERS = (
    (4, 4),
    (8, 8),
    (16, 4),
    (20, 4),
    (24, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 4),
    (100, 4),
    (104, 4),
)
VALUES = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    104,
    112,
    255,
    1023,
    1024,
    4095,
    4096,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Standalone, with a backing file, and with an external data file; of both versions."""
    place = tmp_path_factory.mktemp("disks")
    base = place / "base"
    _qemu_img("create", "-q", "-f", "raw", str(base), "1M")
    backing = ("-b", str(base), "-F", "raw")
    kinds = (
        ("-o", "compat=0.10"),
        ("-o", "compat=1.1"),
        ("-o", "compat=0.10", *backing),
        ("-o", "compat=1.1", *backing),
        ("-o", f"compat=1.1,data_file={place / 'data'}"),
        ("-o", f"compat=1.1,data_file={place / 'data2'},data_file_raw=on"),
    )
    created = []
    for number, words in enumerate(kinds):
        path = place / f"disk{number}"
        _qemu_img("create", "-q", "-f", "qcow2", *words, str(path), "1M")
        created.append(path.read_bytes())
    return created


def _qemu_img(*words: str) -> str:
    result = subprocess.run(
        ["qemu-img", *words], capture_output=True, text=True, timeout=60, check=False
    )
    return result.stdout if result.returncode == 0 else ""


def a_disk(random: Random, disks: list[bytes]) -> bytes:
    disk = random.choice(disks)
    head, rest = disk[:HEADER_BYTES], disk[HEADER_BYTES:]
    for _ in range(random.choice((0, 1, 1, 2))):
        at, length = random.choice(NUMBERS)
        number = random.choice(VALUES).to_bytes(8, "big")[-length:]
        head = head[:at] + number + head[at + length :]
    if random.random() < 0.5:
        head = bytes_like(random, head)
    return head + rest


def references_of(path: Path) -> list[str]:
    """The files that QEMU reports as references; none if QEMU cannot open the file."""
    parsed = json.loads(_qemu_img("info", "-U", "-f", "qcow2", "--output=json", str(path)) or "{}")
    details = (parsed.get("format-specific") or {}).get("data") or {}
    return [name for name in (parsed.get("backing-filename"), details.get("data-file")) if name]


def test_no_reference_that_qemu_follows_is_missed(disks: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "disk"
    for one in inputs("disk_head_of_qemu", seconds_max=60):
        with one as random:
            path.write_bytes(a_disk(random, disks))
            try:
                backing_chain("vda", str(path), bases=tmp_path / "images")
            except VmError:
                continue
            assert references_of(path) == []


def test_every_disk_header_is_read(disks: list[bytes]) -> None:
    for one in inputs("disk_head"):
        with one as random:
            head = bytes_like(random, a_disk(random, disks)[:HEAD_BYTES])[
                : random.choice((0, 8, 70, 4096))
            ]
            if format_of(head) == QCOW2:
                backing_of(head)
                has_external_data(head)
