"""Whether KVM is of use is found by running guests, on the real QEMU."""

import json
from pathlib import Path

import pytest

from persys.agent.kvm import Accel, find_accel, qemu_binary, runs_a_guest
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import SystemClock

# Emulation always works, but this machine may be busy.
PATIENCE_SECONDS = 60


async def test_the_smallest_guest_tells_that_it_ran() -> None:
    qemu = qemu_binary()
    assert qemu is not None

    assert await runs_a_guest(qemu, Accel.TCG, ThreadPathCalls(), deadline=PATIENCE_SECONDS)


async def test_a_machine_that_ends_by_itself_ran_no_guest() -> None:
    assert not await runs_a_guest("/bin/true", Accel.TCG, ThreadPathCalls())


async def test_a_guest_that_gives_no_sign_is_ended_at_the_deadline(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)

    assert not await runs_a_guest(str(silent), Accel.KVM, ThreadPathCalls(), deadline=0.2)


@pytest.mark.parametrize("wish", list(Accel))
async def test_what_the_operator_says_is_not_tried(wish: Accel, tmp_path: Path) -> None:
    found = tmp_path / "kvm.json"

    assert await find_accel(wish.value, found, SystemClock(), ThreadPathCalls()) is wish
    assert not found.exists()


async def test_what_was_found_holds_until_the_machine_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "kvm.json"
    first = await find_accel("auto", path, SystemClock(), ThreadPathCalls())
    if not path.exists():
        return  # no KVM at all: nothing to try, nothing to keep
    kept = json.loads(path.read_text())
    assert kept["accel"] == first.value

    turned = Accel.TCG if first is Accel.KVM else Accel.KVM
    path.write_text(json.dumps(kept | {"accel": turned.value}))
    assert await find_accel("auto", path, SystemClock(), ThreadPathCalls()) is turned
    path.write_text(json.dumps(kept | {"accel": turned.value, "boot_id": "another"}))
    assert await find_accel("auto", path, SystemClock(), ThreadPathCalls()) is first
