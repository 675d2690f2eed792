"""The DNS server: real queries over UDP and TCP, and what it does with packets that are not queries."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from persys.core.dns_names import Announcement
from persys.core.services.answers import Answer, Outcome
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.net import dns_server
from persys.infra.net.dns_server import CONNECTIONS_MAX, QUERIES_PER_SECOND_MAX, DnsServer
from persys.infra.net.dns_wire import RECORDS_MAX, respond
from shells.scheduler.harness import eventually

NAME = "web.services.persys.local"
SRV = f"_http._tcp.{NAME}"


def some(count: int) -> Iterable[tuple[str, Announcement]]:
    for number in range(count):
        yield f"web-{number}.{SRV}", Announcement(f"10.0.0.{number}", 20_000 + number, weight=9)


def resolve(name: str) -> Answer:
    match name:
        case "web.services.persys.local" | "_http._tcp.web.services.persys.local":
            return Answer(Outcome.FOUND, "persys.local", tuple(some(3)))
        case "many.services.persys.local":
            return Answer(Outcome.FOUND, "persys.local", tuple(some(250)))
        case "six.services.persys.local":
            mixed = (("a.six", Announcement("fd00::1", 1)), ("b.six", Announcement("node.lan", 2)))
            return Answer(Outcome.FOUND, "persys.local", mixed)
        case "broken.services.persys.local":
            raise ZeroDivisionError
        case _ if name.endswith("persys.local"):
            return Answer(Outcome.MISSING, "persys.local")
        case _:
            return Answer(Outcome.REFUSED)


class StoppedClock(SystemClock):
    def __init__(self) -> None:
        super().__init__()
        now = self.monotonic()
        self.monotonic = lambda: now


class Server:
    def __init__(self, clock: SystemClock | None = None) -> None:
        self.results: Counter[str] = Counter()
        clock = clock or SystemClock()
        self.server = DnsServer(
            "127.0.0.1",
            0,
            resolve,
            clock,
            supervisor=Supervisor("scheduler", clock, CollectorRegistry()),
            count=lambda result: self.results.update([str(result)]),
        )

    async def ask(self, name: str, kind: str = "A", *, tcp: bool = False) -> dns.message.Message:
        query = dns.message.make_query(name, kind)
        send = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        return await send(query, "127.0.0.1", port=self.server.port, timeout=10)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server()
    task = asyncio.get_running_loop().create_task(running.server.run())

    async def serves() -> bool:
        return running.server.port != 0

    await eventually(serves, lambda: "the DNS server")
    yield running
    task.cancel()
    await asyncio.wait([task])


def texts(section: list[dns.rrset.RRset]) -> set[str]:
    return {str(one) for records in section for one in records}


@pytest.mark.parametrize("tcp", [False, True])
async def test_addresses_and_services_are_answered(server: Server, tcp: bool) -> None:
    addresses = await server.ask(NAME, tcp=tcp)
    services = await server.ask(SRV, "SRV", tcp=tcp)

    assert texts(addresses.answer) == {"10.0.0.0", "10.0.0.1", "10.0.0.2"}
    assert addresses.answer[0].ttl == 5
    assert addresses.flags & dns.flags.AA
    assert texts(services.answer) == {f"10 9 2000{n} web-{n}.{SRV}." for n in range(3)}
    assert texts(services.additional) == {"10.0.0.0", "10.0.0.1", "10.0.0.2"}


async def test_names_are_compared_without_case(server: Server) -> None:
    assert len((await server.ask(NAME.upper())).answer) == 1


async def test_an_unknown_name_and_a_foreign_name_differ(server: Server) -> None:
    missing = await server.ask("absent.services.persys.local")
    foreign = await server.ask("example.org")

    assert missing.rcode() == dns.rcode.NXDOMAIN
    assert "persys.local. 5 IN SOA" in missing.authority[0].to_text()
    assert foreign.rcode() == dns.rcode.REFUSED
    assert (server.results["missing"], server.results["refused"]) == (1, 1)


async def test_a_name_without_records_of_the_type_is_empty(server: Server) -> None:
    reply = await server.ask(NAME, "TXT")

    assert (reply.rcode(), reply.answer, len(reply.authority)) == (dns.rcode.NOERROR, [], 1)


async def test_other_address_families_and_host_names_are_answered(server: Server) -> None:
    four = await server.ask("six.services.persys.local", "A")
    six = await server.ask("six.services.persys.local", "AAAA")
    services = await server.ask("six.services.persys.local", "SRV")

    assert four.answer == []
    assert texts(six.answer) == {"fd00::1"}
    assert texts(services.answer) == {"10 100 1 a.six.", "10 100 2 node.lan."}


async def test_a_large_answer_is_truncated_on_udp_and_bounded_on_tcp(server: Server) -> None:
    short = await server.ask("many.services.persys.local", "SRV")
    long = await server.ask("many.services.persys.local", "SRV", tcp=True)

    assert short.flags & dns.flags.TC
    assert len(long.answer[0]) == RECORDS_MAX


async def test_a_bug_in_the_resolver_costs_one_query(server: Server) -> None:
    query = dns.message.make_query("broken.services.persys.local", "A")
    with pytest.raises(dns.exception.Timeout):
        await dns.asyncquery.udp(query, "127.0.0.1", port=server.server.port, timeout=0.5)

    assert len((await server.ask(NAME)).answer) == 1


async def test_packets_that_are_not_queries_get_no_answer(server: Server) -> None:
    response = dns.message.make_response(dns.message.make_query(NAME, "A")).to_wire()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for packet in (b"", b"x", b"\0" * 11, b"\xff" * 100, response):
            sender.sendto(packet, ("127.0.0.1", server.server.port))

    assert len((await server.ask(NAME)).answer) == 1
    assert server.results["invalid"] >= 4


def test_queries_above_the_rate_are_dropped() -> None:
    server = Server(StoppedClock())
    packet = dns.message.make_query(NAME, "A").to_wire()

    answered = [server.server.handle(packet, udp=True) for _ in range(QUERIES_PER_SECOND_MAX + 5)]

    assert server.results["dropped"] == answered.count(None) == 5


async def test_idle_connections_do_not_stop_others_and_are_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_server, "CONNECTION_SECONDS", 0.5)
    idle = [
        await asyncio.open_connection("127.0.0.1", server.server.port)
        for _ in range(CONNECTIONS_MAX + 5)
    ]
    assert len((await server.ask(NAME)).answer) == 1

    async with asyncio.timeout(30):
        for reader, _ in idle:
            assert await reader.read() == b""
    assert len((await server.ask(NAME, tcp=True)).answer) == 1
    for _, writer in idle:
        writer.close()


async def test_an_address_in_use_is_one_warning(server: Server) -> None:
    second = Server()
    second.server._address = ("127.0.0.1", server.server.port)

    with capture_logs() as logs:
        task = asyncio.get_running_loop().create_task(second.server.run())

        async def warned() -> bool:
            return any(line["event"] == "dns.unavailable" for line in logs)

        await eventually(warned, lambda: "a warning")
        task.cancel()
        await asyncio.wait([task])


@given(st.binary(max_size=600) | st.binary(min_size=12, max_size=40))
def test_no_packet_raises(packet: bytes) -> None:
    respond(packet, lambda _name: Answer(Outcome.REFUSED), udp=True)


@given(st.data())
def test_no_damaged_query_raises(data: st.DataObject) -> None:
    wire = bytearray(dns.message.make_query(SRV, "SRV", use_edns=True).to_wire())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))

    respond(bytes(wire), resolve_all, udp=data.draw(st.booleans()))


def resolve_all(_name: str) -> Answer:
    return Answer(Outcome.FOUND, "persys.local", tuple(some(3)))
