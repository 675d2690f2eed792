"""Addresses behind the name of a service: its SRV records, asked of DNS.

The targets are looked up at the same server, because the machine's own resolver may not know them.
Importing this takes time that most do not need to spend: their addresses are plain.
"""

from collections.abc import Iterator

from dns.exception import DNSException
from dns.message import Message
from dns.name import Name, root
from dns.rdatatype import AAAA, A
from dns.rdtypes.IN.SRV import SRV
from dns.resolver import NXDOMAIN, Answer, NoAnswer, NoNameservers, Resolver

from persys.errors import UnavailableError
from persys.infra.address import split_server


def find_service(name: str, *, server: str, deadline_seconds: float) -> list[str]:
    """host:port of each, in the order in which to try them. UnavailableError: there is none to be had.

    `server` is the address of a DNS server, with a port if it is not the usual; empty: the machine's own.
    """
    try:
        resolver = _resolver(server)
        resolver.lifetime = deadline_seconds
        answer = resolver.resolve(name, "SRV")
        found = [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for target, port in _targets(answer)
            for host in _addresses(target, answer.response, resolver)
        ]
    except (DNSException, OSError) as err:
        raise UnavailableError(f"DNS does not say where {name} is: {err}") from err
    if not found:
        raise UnavailableError(f"DNS says that there is no {name}")
    return found


def _resolver(server: str) -> Resolver:
    if not server:
        return Resolver()
    resolver = Resolver(configure=False)
    host, resolver.port = split_server(server)
    resolver.nameservers = [host]
    return resolver


def _targets(answer: Answer) -> Iterator[tuple[Name, int]]:
    """By priority, and among equals by weight and chance, as RFC 2782 has it."""
    for one in answer.rrset.processing_order() if answer.rrset is not None else ():
        if isinstance(one, SRV) and one.target != root:
            yield one.target, one.port


def _addresses(target: Name, told: Message, resolver: Resolver) -> list[str]:
    """Those that came with the answer, else those asked for, else the name: somebody may know it."""
    found = [
        str(record)
        for records in told.additional
        if records.name == target and records.rdtype in (A, AAAA)
        for record in records
    ]
    for kind in (A, AAAA):
        if not found:
            try:
                found = [str(record) for record in resolver.resolve(target, kind)]
            except (NXDOMAIN, NoAnswer, NoNameservers):
                continue
    return found or [target.to_text(omit_final_dot=True)]
