"""DNS messages: decodes a query and encodes the answer to it.

A packet that is not a query gets no answer. Records are bounded, and an answer that is too large for UDP is
truncated: the client asks again over TCP.
"""

import struct
from collections.abc import Callable, Sequence
from enum import StrEnum
from ipaddress import ip_address

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdata
import dns.rdatatype
from dns.exception import DNSException
from dns.name import Name, from_text
from dns.rdata import Rdata
from dns.rdataclass import IN
from dns.rdatatype import RdataType
from dns.rdtypes.IN.A import A
from dns.rdtypes.IN.AAAA import AAAA
from dns.rdtypes.IN.SRV import SRV
from dns.rrset import RRset

from persys.core.dns_names import TTL_SECONDS, Announcement
from persys.core.services.answers import Answer, Outcome

RECORDS_MAX = 100  # of one answer
UDP_BYTES_DEFAULT = 512
UDP_BYTES_MAX = 1232  # fits into one packet on every path
TCP_BYTES_MAX = 65_535
_HEADER_BYTES = 12
_IS_RESPONSE = 0x80  # in the third byte
_PRIORITY = 10
WEIGHT_DEFAULT = 100

Resolve = Callable[[str], Answer]
"""Answers for a name in lower case, without a trailing dot."""


class Result(StrEnum):
    ANSWERED = "answered"
    EMPTY = "empty"  # the name exists, without records of the type
    MISSING = "missing"
    REFUSED = "refused"
    INVALID = "invalid"  # not a query, or one that is not supported


def respond(packet: bytes, resolve: Resolve, *, udp: bool) -> tuple[bytes | None, Result]:
    """The answer to a packet. None: the packet gets no answer."""
    if len(packet) < _HEADER_BYTES or packet[2] & _IS_RESPONSE:
        return None, Result.INVALID
    try:
        query = dns.message.from_wire(packet, ignore_trailing=True)
        reply = dns.message.make_response(query, our_payload=UDP_BYTES_MAX)
    except (DNSException, ValueError, struct.error):
        return None, Result.INVALID
    result = _fill(query, reply, resolve)
    size_max = _size_max(query) if udp else TCP_BYTES_MAX
    return reply.to_wire(max_size=size_max, prefer_truncation=True), result


def _size_max(query: dns.message.Message) -> int:
    if query.edns < 0:
        return UDP_BYTES_DEFAULT
    return min(max(query.payload, UDP_BYTES_DEFAULT), UDP_BYTES_MAX)


def _fill(query: dns.message.Message, reply: dns.message.Message, resolve: Resolve) -> Result:
    if query.opcode() != dns.opcode.QUERY:
        reply.set_rcode(dns.rcode.NOTIMP)
        return Result.INVALID
    if len(query.question) != 1:
        reply.set_rcode(dns.rcode.FORMERR)
        return Result.INVALID
    question = query.question[0]
    if question.rdclass != IN:
        reply.set_rcode(dns.rcode.REFUSED)
        return Result.REFUSED
    found = resolve(question.name.to_text(omit_final_dot=True).lower())
    if found.outcome is Outcome.REFUSED:
        reply.set_rcode(dns.rcode.REFUSED)
        return Result.REFUSED
    reply.flags |= dns.flags.AA
    if found.outcome is Outcome.FOUND:
        _add_records(reply, question.name, question.rdtype, _rotated(found.records, query.id))
    if reply.answer:
        return Result.ANSWERED
    _add_zone(reply, found.zone)
    if found.outcome is Outcome.MISSING:
        reply.set_rcode(dns.rcode.NXDOMAIN)
        return Result.MISSING
    return Result.EMPTY


def _rotated(
    records: Sequence[tuple[str, Announcement]], number: int
) -> list[tuple[str, Announcement]]:
    """Each query begins with another record: many clients use the first."""
    start = number % len(records) if records else 0
    return [*records[start:], *records[:start]][:RECORDS_MAX]


def _add_records(
    reply: dns.message.Message,
    name: Name,
    kind: RdataType,
    records: Sequence[tuple[str, Announcement]],
) -> None:
    if kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
        hosts = dict.fromkeys(one.host for _, one in records if _kind_of(one.host) is kind)
        _add(reply.answer, name, [_address(kind, host) for host in hosts])
    elif kind is dns.rdatatype.SRV:
        found: list[Rdata] = []
        for own, one in records:
            address = _kind_of(one.host)
            target = from_text(own if address is not None else one.host)
            weight = one.weight or WEIGHT_DEFAULT
            found.append(
                SRV(IN, kind, _PRIORITY, weight, one.port, target)  # type: ignore[no-untyped-call]
            )
            if address is not None:
                _add(reply.additional, target, [_address(address, one.host)])
        _add(reply.answer, name, found)


def _kind_of(host: str) -> RdataType | None:
    """None: the name of a host."""
    try:
        return dns.rdatatype.A if ip_address(host).version == 4 else dns.rdatatype.AAAA
    except ValueError:
        return None


def _address(kind: RdataType, host: str) -> Rdata:
    make = A if kind is dns.rdatatype.A else AAAA
    return make(IN, kind, host)


def _add_zone(reply: dns.message.Message, zone: str) -> None:
    """Says how long the absence of records may be cached."""
    text = f"ns.{zone}. hostmaster.{zone}. 1 {TTL_SECONDS} {TTL_SECONDS} 3600 {TTL_SECONDS}"
    found = dns.rdata.from_text(IN, dns.rdatatype.SOA, text)
    _add(reply.authority, from_text(zone), [found])


def _add(section: list[RRset], name: Name, records: Sequence[Rdata]) -> None:
    """All records are of one type."""
    if not records:
        return
    found = RRset(name, IN, records[0].rdtype)
    for one in records:
        found.add(one, TTL_SECONDS)
    section.append(found)
