"""Runs of VMs, their artefacts and their records."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from persys.agent.runtimes.vm.console import tail_of
from persys.agent.runtimes.vm.domain_xml import DomainDescription
from persys.agent.runtimes.vm.inspection import DomainView, artefact_of, primary, run_of
from persys.agent.runtimes.vm.libvirt import load
from persys.agent.runtimes.vm.state_dir import DiskRecord, Run, VmStateDir
from persys.core.agent.progress import Condition
from persys.errors import RuntimeUnavailableError
from persys.model.ids import WorkloadId
from persys.model.status import FailureReason

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)
RUN = Run(7, NOON)
try:
    libvirt = load()
except RuntimeUnavailableError as err:  # a Python that the distribution has no binding for
    pytest.skip(str(err), allow_module_level=True)


def a_view(
    state: int = libvirt.VIR_DOMAIN_RUNNING,
    reason: int = 0,
    *,
    number: int = 7,
    addresses: tuple[str, ...] = (),
    full_disks: tuple[str, ...] = (),
    broken_disks: tuple[str, ...] = (),
    disk: str = "/",
) -> DomainView:
    found = DomainDescription(
        name="web",
        accel="tcg",
        labels={"persys.revision_id": "r1"},
        mac_addresses=("52:54:00:00:00:01",),
        sources={"vda": disk},
        formats={},
        console="",
        guest_agent=False,
        vnc="127.0.0.1:5900",
    )
    return DomainView("uuid", number, state, reason, found, addresses, full_disks, broken_disks)


def off(reason: int = 0) -> DomainView:
    return a_view(libvirt.VIR_DOMAIN_SHUTOFF, reason, number=-1)


def paused(reason: int, **found: tuple[str, ...] | str) -> DomainView:
    return a_view(libvirt.VIR_DOMAIN_PAUSED, reason, **found)  # type: ignore[arg-type]  # free by intent


def test_a_running_vm_starts_a_run() -> None:
    assert run_of(a_view(), None, now=NOON) == RUN
    assert run_of(a_view(), RUN, now=LATER) == RUN


def test_a_restart_between_inspections_starts_a_new_run() -> None:
    ended = replace(RUN, finished_at=NOON)

    assert run_of(a_view(), ended, now=LATER) == Run(7, LATER)
    assert run_of(a_view(number=8), RUN, now=LATER) == Run(8, LATER)


def test_a_vm_that_never_ran_is_created() -> None:
    assert run_of(off(), None, now=NOON) is None
    assert artefact_of(off(), None, now=NOON).condition is Condition.CREATED


@pytest.mark.parametrize(
    ("reason", "exit_code", "ending"),
    [
        (libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, 0, "the guest shut down"),
        (libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, 1, "the guest crashed"),
        (libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED, 137, "the VM was powered off"),
        (libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN, 255, "stopped while the agent was not running"),
    ],
)
def test_the_shutoff_reason_is_stored(reason: int, exit_code: int, ending: str) -> None:
    run = run_of(off(reason), RUN, now=LATER)

    assert run == Run(7, NOON, LATER, exit_code, ending)
    assert (
        run_of(off(), run, now=LATER + timedelta(hours=1)) == run
    )  # libvirtd does not store the reason
    seen = artefact_of(off(), run, now=LATER)
    assert (seen.condition, seen.exit_code, seen.error) == (Condition.EXITED, exit_code, ending)


def test_a_vm_without_an_address_is_inspected_again_soon() -> None:
    assert artefact_of(a_view(), RUN, now=NOON).look_again_after == timedelta(seconds=1)
    assert artefact_of(a_view(), RUN, now=NOON + timedelta(hours=1)).look_again_after is None
    known = artefact_of(a_view(addresses=("10.0.0.2",)), RUN, now=NOON)
    assert known.look_again_after is None
    assert known.facts["vm.primary_ip"] == "10.0.0.2"


def test_a_paused_vm_has_no_failure() -> None:
    seen = artefact_of(paused(libvirt.VIR_DOMAIN_PAUSED_USER), RUN, now=NOON)

    assert (seen.condition, seen.trouble) == (Condition.PAUSED, None)


def test_a_vm_without_disk_space_names_the_disk(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    view = paused(libvirt.VIR_DOMAIN_PAUSED_IOERROR, full_disks=("vda",), disk=gone)

    trouble = artefact_of(view, RUN, now=NOON).trouble

    assert trouble is not None
    assert (trouble.reason, trouble.code) == (FailureReason.STORAGE_ERROR, "NoSpace")
    assert "disk vda" in trouble.message


def test_a_vm_resumes_when_there_is_disk_space_again(tmp_path: Path) -> None:
    view = paused(libvirt.VIR_DOMAIN_PAUSED_IOERROR, full_disks=("vda",), disk=str(tmp_path))

    assert artefact_of(view, RUN, now=NOON).trouble is None


def test_a_vm_with_an_io_error_does_not_resume() -> None:
    view = paused(libvirt.VIR_DOMAIN_PAUSED_IOERROR, broken_disks=("vdb",))

    trouble = artefact_of(view, RUN, now=NOON).trouble

    assert trouble is not None
    assert (trouble.code, "vdb" in trouble.message) == ("DiskError", True)


@pytest.mark.parametrize(
    ("addresses", "first"),
    [((), ""), (("fd00::1", "10.0.0.2"), "10.0.0.2"), (("fd00::1",), "fd00::1")],
)
def test_the_first_ipv4_address_is_the_primary_one(addresses: tuple[str, ...], first: str) -> None:
    assert primary(addresses) == first


def test_discard_keeps_the_disk_records_only(tmp_path: Path) -> None:
    place = VmStateDir(tmp_path, WorkloadId("web"))
    disk = DiskRecord("vda", NOON, pool="fast", volume="web-vda.qcow2")
    place.write_run(RUN)
    place.write_disks((disk,))
    (place.root / "half-written").mkdir()

    place.discard()

    assert (place.read_run(), place.read_disks()) == (None, (disk,))
    place.write_disks(())
    place.discard()
    assert not place.root.exists()


def test_a_damaged_record_is_ignored(tmp_path: Path) -> None:
    place = VmStateDir(tmp_path, WorkloadId("web"))
    place.write_run(RUN)
    (place.root / "run.json").write_text("{")

    assert place.read_run() is None


def test_the_console_tail_has_no_control_sequences(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"\x1b[2J\x1b[01;01H\x1b[0mBooting\r\nKernel panic \xff\n")

    assert tail_of(log) == "Booting\nKernel panic \ufffd\n"
    assert tail_of(tmp_path / "none") == ""
