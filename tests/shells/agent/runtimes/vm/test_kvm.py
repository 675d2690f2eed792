"""KVM is detected by running a guest on the real QEMU."""

import json
from pathlib import Path

import pytest

from persys.agent.runtimes.vm.kvm import Accel, detect_accel, qemu_binary, runs_a_guest
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import SystemClock

# Emulation always works, but the host may be busy.
PATIENCE_SECONDS = 60


async def test_the_smallest_guest_reports_that_it_ran() -> None:
    qemu = qemu_binary()
    assert qemu is not None

    assert await runs_a_guest(qemu, Accel.TCG, ThreadPathCalls(), deadline=PATIENCE_SECONDS)


async def test_a_qemu_that_exits_early_ran_no_guest() -> None:
    assert not await runs_a_guest("/bin/true", Accel.TCG, ThreadPathCalls())


async def test_a_guest_without_output_is_killed_at_the_deadline(tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)

    assert not await runs_a_guest(str(silent), Accel.KVM, ThreadPathCalls(), deadline=0.2)


@pytest.mark.parametrize("configured", list(Accel))
async def test_a_configured_acceleration_is_not_tested(configured: Accel, tmp_path: Path) -> None:
    found = tmp_path / "kvm.json"

    assert (
        await detect_accel(configured.value, found, SystemClock(), ThreadPathCalls()) is configured
    )
    assert not found.exists()


async def test_the_detected_acceleration_is_cached_until_a_reboot(tmp_path: Path) -> None:
    path = tmp_path / "kvm.json"
    first = await detect_accel("auto", path, SystemClock(), ThreadPathCalls())
    if not path.exists():
        return  # no KVM: nothing to test and nothing to cache
    kept = json.loads(path.read_text())
    assert kept["accel"] == first.value

    turned = Accel.TCG if first is Accel.KVM else Accel.KVM
    path.write_text(json.dumps(kept | {"accel": turned.value}))
    assert await detect_accel("auto", path, SystemClock(), ThreadPathCalls()) is turned
    path.write_text(json.dumps(kept | {"accel": turned.value, "boot_id": "another"}))
    assert await detect_accel("auto", path, SystemClock(), ThreadPathCalls()) is first
