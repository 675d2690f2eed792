"""Resolves a service name to addresses with DNS SRV records.

The targets are resolved by the same server, because the system resolver may not know them. The import is
slow, so it is done only for service names.
"""

from collections.abc import Iterator

from dns.exception import DNSException
from dns.message import Message
from dns.name import Name, root
from dns.rdatatype import AAAA, A
from dns.rdtypes.IN.SRV import SRV
from dns.resolver import NXDOMAIN, Answer, NoAnswer, NoNameservers, Resolver

from persys.errors import UnavailableError
from persys.infra.net.address import split_server


def find_service(name: str, *, server: str, deadline_seconds: float) -> list[str]:
    """The host:port of each target, in the order to try them. Raises UnavailableError.

    `server` is the address of a DNS server with an optional port; empty: the system resolver.
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
        raise UnavailableError(f"cannot resolve the SRV records of {name}: {err}") from err
    if not found:
        raise UnavailableError(f"{name} has no SRV records with a target")
    return found


def _resolver(server: str) -> Resolver:
    if not server:
        return Resolver()
    resolver = Resolver(configure=False)
    host, resolver.port = split_server(server)
    resolver.nameservers = [host]
    return resolver


def _targets(answer: Answer) -> Iterator[tuple[Name, int]]:
    """The targets by priority and weight, as in RFC 2782."""
    for one in answer.rrset.processing_order() if answer.rrset is not None else ():
        if isinstance(one, SRV) and one.target != root:
            yield one.target, one.port


def _addresses(target: Name, response: Message, resolver: Resolver) -> list[str]:
    """The addresses in the response, else those from a query, else the host name."""
    found = [
        str(record)
        for records in response.additional
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
