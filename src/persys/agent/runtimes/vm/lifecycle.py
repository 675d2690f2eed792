"""Maps an inspected domain to an artefact, and tracks starts and stops, which libvirt does not store."""

from datetime import datetime, timedelta
from shutil import disk_usage

from msgspec.structs import replace

from persys.agent.runtimes.docker.mapping import REVISION_LABEL
from persys.agent.runtimes.vm.inspection import Sight, facts
from persys.agent.runtimes.vm.libvirt_import import load
from persys.agent.runtimes.vm.state_dir import Run
from persys.core.agent.next_step import SWITCHED_OFF, Artefact, Condition
from persys.model.ids import Revision
from persys.model.status import Failure, FailureReason

ROOM_BYTES = (
    64 * 1024 * 1024
)  # free space at which a VM that is paused for lack of space may resume
ADDRESS_AWAITED = timedelta(minutes=3)
ADDRESS_LOOK_AFTER = timedelta(seconds=1)
CRASHED = 1
NOBODY_KNOWS = 255


def run_of(sight: Sight, before: Run | None, *, now: datetime) -> Run | None:
    """The current or last run of the VM. None if it never ran."""
    if sight.number >= 0:
        if before is None or before.finished_at is not None or before.number != sight.number:
            return Run(sight.number, now)
        return before
    if before is None or before.finished_at is not None:
        return before
    exit_code, ending = _ending(sight.reason)
    return replace(before, finished_at=now, exit_code=exit_code, ending=ending)


def artefact_of(sight: Sight, run: Run | None, *, now: datetime) -> Artefact:
    known = {name: word for name, word in facts(sight).items() if word}
    condition = _condition(sight, run)
    runs = condition is Condition.RUNNING
    awaited = runs and run is not None and now - run.started_at < ADDRESS_AWAITED
    nowhere = bool(sight.described.mac_addresses) and not sight.addresses
    return Artefact(
        id=sight.uuid,
        name=sight.described.name,
        condition=condition,
        revision=Revision(sight.described.labels.get(REVISION_LABEL, "")),
        exit_code=run.exit_code if run is not None else 0,
        started_at=run.started_at if run is not None else None,
        finished_at=run.finished_at if run is not None else None,
        error=run.ending if run is not None else "",
        boots=True,
        trouble=_trouble(sight) if condition is Condition.PAUSED else None,
        facts=known,
        look_again_after=ADDRESS_LOOK_AFTER if awaited and nowhere else None,
    )


def _condition(sight: Sight, run: Run | None) -> Condition:
    libvirt = load()
    if sight.number < 0:
        return Condition.EXITED if run is not None else Condition.CREATED
    if sight.state == libvirt.VIR_DOMAIN_PMSUSPENDED:
        return Condition.PAUSED
    if sight.state == libvirt.VIR_DOMAIN_PAUSED:
        coming_up = sight.reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP
        return Condition.RUNNING if coming_up else Condition.PAUSED
    return Condition.RUNNING


def _trouble(sight: Sight) -> Failure | None:
    libvirt = load()
    if sight.state != libvirt.VIR_DOMAIN_PAUSED:
        return None
    if sight.reason != libvirt.VIR_DOMAIN_PAUSED_IOERROR:
        return None
    for device in sight.full_disks:
        path = sight.described.sources.get(device, "")
        if not path or not _has_room(path):
            text = f"disk {device}: no space left on this node; the VM is paused"
            return Failure(FailureReason.STORAGE_ERROR, text, code="NoSpace")
    if sight.full_disks and not sight.broken_disks:
        return None
    devices = ", ".join(sight.broken_disks) or "unknown"
    text = f"disk {devices}: I/O error; the VM is paused"
    return Failure(FailureReason.STORAGE_ERROR, text, code="DiskError")


def _has_room(path: str) -> bool:
    try:
        return disk_usage(path).free >= ROOM_BYTES
    except OSError:
        return False


def _ending(reason: int) -> tuple[int, str]:
    libvirt = load()
    return {
        libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: (0, "the guest shut down"),
        libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: (SWITCHED_OFF, "the VM was powered off"),
        libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: (CRASHED, "the guest crashed"),
        libvirt.VIR_DOMAIN_SHUTOFF_FAILED: (CRASHED, "QEMU exited"),
        libvirt.VIR_DOMAIN_SHUTOFF_SAVED: (0, "the VM was saved"),
    }.get(reason, (NOBODY_KNOWS, "stopped while the agent was not running"))
