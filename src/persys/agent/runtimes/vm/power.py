"""Start, resume, shut down, power off and undefine domains, by UUID."""

import asyncio
from functools import partial
from typing import Any

from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, load
from persys.core.agent.progress import Artefact, Condition
from persys.errors import RuntimeUnavailableError
from persys.infra.clock import Clock

POLL_SECONDS = 0.2
# A booting guest ignores the power button.
PRESS_INTERVAL_SECONDS = 10.0
OFF_SECONDS = 30.0


def power_on(connection: Any, uuid: str) -> None:
    connection.lookupByUUIDString(uuid).create()


def resume(connection: Any, uuid: str) -> None:
    libvirt = load()
    domain = connection.lookupByUUIDString(uuid)
    if domain.state()[0] == libvirt.VIR_DOMAIN_PMSUSPENDED:
        domain.pMWakeup()
    else:
        domain.resume()


async def shut_down(libvirt: Libvirt, artefact: Artefact, *, grace: float, clock: Clock) -> None:
    """Shut the guest down, and power it off after the grace. A paused guest is powered off at once."""
    begun_at = clock.monotonic()
    pressed_at: float | None = None
    while artefact.condition is not Condition.PAUSED:
        now = clock.monotonic()
        if now - begun_at >= grace:
            break
        if pressed_at is None or now - pressed_at >= PRESS_INTERVAL_SECONDS:
            pressed_at = now
            await libvirt.call(partial(_press_power_button, uuid=artefact.id))
        if not await libvirt.call(partial(_is_active, uuid=artefact.id)):
            return
        await asyncio.sleep(POLL_SECONDS)
    await libvirt.call(partial(power_off, uuid=artefact.id), deadline=OFF_SECONDS)


def undefine(connection: Any, uuid: str) -> None:
    libvirt = load()
    domain = connection.lookupByUUIDString(uuid)
    domain.undefineFlags(
        libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    )


def xml(connection: Any, uuid: str) -> str:
    return str(connection.lookupByUUIDString(uuid).XMLDesc())


def uuid_by_name(connection: Any, name: str) -> str:
    """The UUID of the domain with this name, or ""."""
    libvirt = load()
    try:
        return str(connection.lookupByName(name).UUIDString())
    except libvirt.libvirtError as err:
        if err.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return ""
        raise


def unavailable(err: LibvirtError) -> RuntimeUnavailableError:
    """For read calls: on an error nothing is known."""
    return RuntimeUnavailableError(f"libvirt: {err.message}")


def _is_active(connection: Any, uuid: str) -> bool:
    libvirt = load()
    try:
        return bool(connection.lookupByUUIDString(uuid).isActive())
    except libvirt.libvirtError as err:
        if err.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return False
        raise


def _press_power_button(connection: Any, uuid: str) -> None:
    libvirt = load()
    domain = connection.lookupByUUIDString(uuid)
    try:
        domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
    except libvirt.libvirtError as err:
        if err.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:  # it is already off
            raise


def power_off(connection: Any, uuid: str) -> None:
    libvirt = load()
    try:
        connection.lookupByUUIDString(uuid).destroy()
    except libvirt.libvirtError as err:
        if err.get_error_code() not in (
            libvirt.VIR_ERR_OPERATION_INVALID,
            libvirt.VIR_ERR_NO_DOMAIN,
        ):
            raise
