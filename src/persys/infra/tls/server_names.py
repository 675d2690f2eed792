"""The names that certificates of schedulers must have, by address.

A Persys certificate is verified by the fixed name of its role, at any address. A third-party scheduler has no
such name. After a failed connection its certificate is read: if a trusted CA signed it, it has no Persys URI,
its common name is that of a scheduler and it contains the host of the address, the host is verified from then
on. A certificate of another role never leads to that. After an outage of a minute it is read again.
"""

import asyncio
import ssl
from collections.abc import Mapping
from ipaddress import ip_address

import structlog
from cryptography import x509

from persys.infra.atomic_files import CertificateFiles
from persys.infra.clock import Clock
from persys.infra.tls.identity import CN_ROLES, NAME, claims_of, hosts_of
from persys.model.identity import Role, server_name

log = structlog.get_logger()

HANDSHAKE_SECONDS = 3.0
PAUSE_SECONDS = 1.0
OUTAGE_SECONDS = 60.0
_Server = tuple[str, Role]  # its address


class ServerNames:
    def __init__(self, files: CertificateFiles, clock: Clock, cn_roles: Mapping[str, Role]) -> None:
        self._files = files
        self._clock = clock
        self._cn_roles = cn_roles
        self._unexamined: set[_Server] = set()
        self._wake = asyncio.Event()
        self._by_host: set[_Server] = set()
        self._settled: set[_Server] = set()  # their name is known: a failure is probably an outage
        self._failing_since: dict[_Server, float] = {}
        self._reasons: dict[_Server, str] = {}

    def expected(self, target: str, role: Role) -> str:
        """The required name; empty: the host of the target."""
        return "" if (target, role) in self._by_host else server_name(role)

    def report(self, target: str, role: Role, *, connected: bool) -> bool:
        """Report whether there is a connection. Returns whether the certificate will be read.

        After an outage of a scheduler, its clients do not all read its certificate at once.
        """
        server, now = (target, role), self._clock.monotonic()
        if connected:
            self._settled.add(server)
            self._failing_since.pop(server, None)
            return False
        since = self._failing_since.setdefault(server, now)
        if server in self._settled and now - since < OUTAGE_SECONDS:
            return False
        self._failing_since[server] = now
        self._unexamined.add(server)
        self._wake.set()
        return True

    async def run(self) -> None:
        """Read the certificates of servers that could not be connected."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            servers, self._unexamined = self._unexamined, set()
            for target, role in sorted(servers):
                await self.examine(target, role)
            await asyncio.sleep(PAUSE_SECONDS)

    async def examine(self, target: str, role: Role) -> None:
        """Read the certificate of the server and decide which name it must have."""
        host, _, port = target.rpartition(":")
        host = host.strip("[]")
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                certificate = await self._certificate_of(host, int(port))
        except (OSError, TimeoutError, ValueError):
            return  # no connection: nothing is known
        is_third_party = not claims_of(certificate).trust_domain
        reason = why_not(certificate, host, role, self._cn_roles) if is_third_party else ""
        self._use_host(target, role, by_host=is_third_party and not reason)
        self._settled.add((target, role))
        if reason != self._reasons.get((target, role), ""):
            self._reasons[target, role] = reason
            if reason:
                log.warning("server.not_verified", target=target, reason=reason)

    def _use_host(self, target: str, role: Role, *, by_host: bool) -> None:
        if by_host == ((target, role) in self._by_host):
            return
        if by_host:
            self._by_host.add((target, role))
        else:
            self._by_host.discard((target, role))
        log.info("server.verified_by", target=target, by="host" if by_host else "identity")

    async def _certificate_of(self, host: str, port: int) -> x509.Certificate:
        """Signed by a trusted CA. Raises OSError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # every connection that carries calls verifies a name
        context.set_alpn_protocols(["h2"])
        context.load_verify_locations(self._files.roots)
        context.load_cert_chain(self._files.certificate, self._files.key)
        _, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return x509.load_der_x509_certificate(presented)
        finally:
            writer.transport.abort()


def why_not(
    certificate: x509.Certificate, host: str, role: Role, cn_roles: Mapping[str, Role]
) -> str:
    """Why a third-party certificate is not accepted for a server of this role; empty if it is."""
    claims = claims_of(certificate)
    name = claims.common_name
    if claims.identity is None and cn_roles.get(name) is not role:
        text = f"certificate CN {name[:80]!r} is not recognised"
        return f"{text}; {CN_ROLES}={name[:80]}={role} admits it" if NAME.fullmatch(name) else text
    if claims.identity is not None and claims.identity.role is not role:
        return f"certificate is of {claims.identity}: expected {role}"
    hosts = hosts_of(certificate)
    if not any(_covers(one, host) for one in hosts):
        shown = ", ".join(hosts)[:200] or "no host"
        return f"certificate CN {name[:80]!r} is valid for {shown}: expected {host}"
    return ""


def _covers(name: str, host: str) -> bool:
    try:
        return ip_address(name) == ip_address(host)
    except ValueError:
        pass
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and name[2:] == host.partition(".")[2])
