"""The connection to the real libvirtd: calls, events, and outages."""

import asyncio
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from persys.agent.runtimes.vm.libvirt import DomainEvent, Libvirt, LibvirtError, load
from persys.errors import RuntimeUnavailableError
from socket_proxy import LIBVIRT_SOCKET, Proxy

URI = "qemu:///system"
# Twice the usual time, for a busy host.
FOUND_OUT_SECONDS = 15


@pytest.fixture
async def libvirt() -> AsyncIterator[Libvirt]:
    created = Libvirt(URI)
    yield created
    await created.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    created = Proxy(tmp_path / "libvirt.sock", socket=LIBVIRT_SOCKET)
    created.restore()
    yield created
    created.close()


@pytest.fixture
async def connected_through(proxy: Proxy) -> AsyncIterator[Libvirt]:
    """A connection through a proxy."""
    created = Libvirt(f"qemu+unix:///system?socket={proxy.path}")
    yield created
    await created.close()


@pytest.fixture
def domain() -> Iterator[str]:
    """A free domain name, undefined after the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    yield name
    subprocess.run(["virsh", "-q", "undefine", name], capture_output=True, check=False)


def xml_of(name: str) -> str:
    return (
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>16</memory>"
        "<os><type arch='x86_64'>hvm</type></os></domain>"
    )


async def test_a_libvirt_error_has_its_code(libvirt: Libvirt) -> None:
    with pytest.raises(LibvirtError) as refused:
        await libvirt.call(lambda connection: connection.lookupByName("no-such-domain"))

    assert refused.value.code == load().VIR_ERR_NO_DOMAIN
    assert "no-such-domain" in refused.value.message


async def test_an_exception_in_a_call_reaches_the_caller(libvirt: Libvirt) -> None:
    def work(_connection: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await libvirt.call(work)


async def test_a_call_over_its_deadline_is_abandoned(libvirt: Libvirt) -> None:
    with pytest.raises(RuntimeUnavailableError):
        await libvirt.call(lambda _connection: time.sleep(1), deadline=0.1)


async def test_events_name_their_domain(libvirt: Libvirt, domain: str) -> None:
    async with aclosing(libvirt.domain_events()) as events, asyncio.timeout(FOUND_OUT_SECONDS):
        assert await anext(events) is None
        await libvirt.call(lambda connection: connection.defineXML(xml_of(domain)) and None)
        found = [event async for event in _until(events, domain)]

    assert found[-1].event == load().VIR_DOMAIN_EVENT_DEFINED


async def test_a_missing_libvirtd_is_unavailable(tmp_path: Path) -> None:
    libvirt = Libvirt(f"qemu+unix:///system?socket={tmp_path}/nobody")

    with pytest.raises(RuntimeUnavailableError, match="nobody"):
        await libvirt.ping()


async def test_a_lost_connection_ends_the_events_and_is_reopened(
    connected_through: Libvirt, proxy: Proxy
) -> None:
    async with (
        aclosing(connected_through.domain_events()) as events,
        asyncio.timeout(FOUND_OUT_SECONDS),
    ):
        assert await anext(events) is None
        await asyncio.to_thread(proxy.cut)
        with pytest.raises(RuntimeUnavailableError):
            [event async for event in events]
    with pytest.raises(RuntimeUnavailableError):
        await connected_through.ping()

    await asyncio.to_thread(proxy.restore)
    await connected_through.ping()
    async with aclosing(connected_through.domain_events()) as events:
        assert await anext(events) is None


async def test_a_frozen_libvirtd_is_detected_within_seconds(
    connected_through: Libvirt, proxy: Proxy
) -> None:
    events = connected_through.domain_events()
    assert await anext(events) is None

    proxy.hold()
    async with asyncio.timeout(FOUND_OUT_SECONDS):
        with pytest.raises(RuntimeUnavailableError):
            await anext(events)
    proxy.release()

    await connected_through.ping()


async def test_calls_while_the_first_connection_hangs_end_at_their_deadlines(
    connected_through: Libvirt, proxy: Proxy
) -> None:
    proxy.hold()
    for _ in range(2):
        with pytest.raises(RuntimeUnavailableError):
            await connected_through.call(lambda connection: connection.getHostname(), deadline=0.3)
    proxy.release()

    await connected_through.ping()


async def _until(events: Any, name: str) -> AsyncIterator[DomainEvent]:
    """Wait for an event of this domain; other tests define domains at the same time."""
    async for event in events:
        if event.name == name:
            yield event
            return
