"""TLS of a process: its certificate, renewal, revocation lists, and channels to verified servers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from random import SystemRandom
from types import MappingProxyType
from typing import Any

from persys.core.auth.certificate_renewal import freshness
from persys.errors import DeniedError
from persys.infra.clock import Clock
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX, MESSAGE_BYTES_MAX
from persys.infra.rpc.rotating_channel import RotatingChannel, Verification
from persys.infra.tls.certificates import CertificateFiles, Certificates, KeyPair
from persys.infra.tls.identity import Claims
from persys.infra.tls.renewal import CertificateSource, Renewal
from persys.infra.tls.revocation import Revocations
from persys.infra.tls.server_names import ServerNames
from persys.model.identity import Role, server_name


class Verify(StrEnum):
    """How a server certificate is verified."""

    # By the fixed name of its role, at any address; a third-party scheduler by its common name and host.
    IDENTITY = "identity"
    HOST = "host"  # by the host name in the address, for certificates of existing deployments


class Tls:
    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock,
        *,
        verify: Verify = Verify.IDENTITY,
        source: CertificateSource | None = None,
        lists: Sequence[Revocations] = (),
        cn_roles: Mapping[str, Role] = MappingProxyType({}),
    ) -> None:
        """Without a source, another program renews the files. Raises SettingsError for unusable files."""
        self._clock = clock
        self._verify = verify
        self.certificates = Certificates(files, clock)
        self._lists = lists
        self.cn_roles = cn_roles
        self._names = ServerNames(files, clock, cn_roles)
        self._renewal: Renewal | None = None
        if source is not None:
            self._renewal = Renewal(self.certificates, files, source, clock, SystemRandom())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.certificates.run())
            group.create_task(self._names.run())
            if self._renewal is not None:
                group.create_task(self._renewal.run())
            for one in self._lists:
                group.create_task(one.run())

    def channel(
        self,
        target: str,
        role: Role,
        name: str = "",
        *,
        sends_own_identity: bool = False,
        by_host: bool = False,
    ) -> RotatingChannel:
        """A channel to a server with this role, and this name if set.

        `sends_own_identity`: calls without an identity pass the identity of this process. `by_host`: verify
        the host name, independent of the setting.
        """
        by_name = self._verify is Verify.IDENTITY and not by_host
        fixed = server_name(role, name) if by_name else ""
        verification = Verification(lambda: fixed)
        if by_name and role is Role.SCHEDULER:
            verification = Verification(
                partial(self._names.expected, target, role),
                lambda connected: self._names.report(target, role, connected=connected),
            )
        # A compromised node must not be able to fill the memory of a scheduler.
        most = MESSAGE_BYTES_MAX if role is Role.AGENT else LIST_BYTES_MAX
        return RotatingChannel(
            target,
            self.certificates,
            verification=verification,
            answer_bytes_max=most,
            sends_own_identity=sends_own_identity,
        )

    def dial(
        self, role: Role, *, sends_own_identity: bool = False
    ) -> Callable[[str], RotatingChannel]:
        return lambda target: self.channel(target, role, sends_own_identity=sends_own_identity)

    def check(self, claims: Claims) -> None:
        """Raises DeniedError for a revoked certificate."""
        if self.is_revoked(claims.serial):
            text = f"the certificate {claims.serial} of {claims.identity} has been revoked"
            raise DeniedError(text, reason="revoked")

    def is_revoked(self, serial: str) -> bool:
        return any(serial in one.serials for one in self._lists)

    def revocations_age(self) -> Callable[[], float] | None:
        """The age of the oldest list in seconds, or None without a list."""
        if not self._lists:
            return None
        return lambda: max(one.age_seconds() for one in self._lists)

    def in_use(self) -> KeyPair:
        return self.certificates.current

    def seconds_left(self) -> float:
        return (self.certificates.expires_at - self._clock.now()).total_seconds()

    def lifetime_seconds(self) -> float:
        claims = self.certificates.current.claims
        return (claims.not_after - claims.not_before).total_seconds()

    def health(self) -> Mapping[str, Any]:
        claims = self.certificates.current.claims
        status: dict[str, Any] = {
            "identity": str(claims.identity or ""),
            "serial": claims.serial,
            "expiresAt": claims.not_after.isoformat(),
            "freshness": freshness(claims.not_before, claims.not_after, self._clock.now()).value,
        }
        if self._renewal is not None and self._renewal.last_error:
            status["notRenewed"] = self._renewal.last_error
        if self.is_revoked(claims.serial):
            status["revoked"] = True
        if errors := "; ".join(one.last_error for one in self._lists if one.last_error):
            status["revocationsNotRead"] = errors
        return status
