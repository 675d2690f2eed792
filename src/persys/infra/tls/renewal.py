"""Renews the certificate of the process, with a new key.

Renewal starts at half of the lifetime, so the other half remains for an authority that is down. This module
writes the files; `Certificates` reloads them as after a change by another program.
"""

import asyncio
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

import structlog
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

from persys.core.auth.certificate_renewal import Freshness, freshness, retry_after
from persys.errors import PersysError, SettingsError
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.clock import Clock
from persys.infra.tls.certificates import (
    CertificateFiles,
    Certificates,
    checked_key_pair,
    joined_roots,
)
from persys.infra.tls.keys import Issued, key_pem, new_key, new_request
from persys.model.identity import Identity

log = structlog.get_logger()

CHECK_SECONDS = 1.0
# Delay after a new certificate was written but is not in use: another program writes the files too.
UNUSED_SECONDS = 60.0
_URGENT = (Freshness.CRITICAL, Freshness.EXPIRED)


class CertificateSource(Protocol):
    """Issues certificates."""

    every: timedelta | None = None  # the retry interval, if an operator has set it

    def request(self, key: CertificateIssuerPrivateKeyTypes, identity: Identity) -> bytes:
        """The signing request for a new key and the identity of the certificate in use."""
        return new_request(key, identity, ())

    async def issue(self, csr_pem: bytes) -> Issued:
        """The certificate for a request. Raises PersysError or TimeoutError."""

    async def run(self) -> None:
        """Background work of the source; none by default."""
        return


class Renewal:
    def __init__(
        self,
        certificates: Certificates,
        files: CertificateFiles,
        source: CertificateSource,
        clock: Clock,
        random: Random,
    ) -> None:
        """Raises SettingsError for a certificate without a recognised identity."""
        identity = certificates.current.claims.identity
        if identity is None:
            raise SettingsError(
                f"{files.certificate}: identity is not recognised; the certificate cannot be renewed"
            )
        self._identity = identity
        self._certificates = certificates
        self._files = files
        self._source = source
        self._clock = clock
        self._random = random
        self._failures = 0
        self._is_urgent = False
        self._not_before: datetime | None = None  # no attempt before
        self.last_error = ""  # the error of the last attempt; empty on success

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.run())
            group.create_task(self._watch())

    async def renew(self) -> bool:
        """Request a certificate. Whether a new one is in use now."""
        try:
            await self._fetch()
        except (PersysError, TimeoutError, OSError) as err:
            self._failed(str(err) or "no response in time")
            return False
        self._failures = 0
        self._is_urgent = False
        self._not_before = self._clock.now() + timedelta(seconds=UNUSED_SECONDS)
        if self.last_error:
            self.last_error = ""
            log.info("certificate.renewed_again")
        renewed = self._certificates.reload()
        if renewed:
            self._not_before = None
        return renewed

    async def renew_if_due(self) -> None:
        """Renew the certificate if it is due."""
        if self._is_due():
            await self.renew()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.renew_if_due()

    def _is_due(self) -> bool:
        now = self._clock.now()
        claims = self._certificates.current.claims
        if freshness(claims.not_before, claims.not_after, now) is Freshness.FRESH:
            return False
        return self._not_before is None or now >= self._not_before

    async def _fetch(self) -> None:
        key = new_key()
        issued = await self._source.issue(self._source.request(key, self._identity))
        # Roots are only added, so other certificates stay trusted.
        known = self._certificates.current.roots
        await write_issued(self._files, key_pem(key), issued, known=known, now=self._clock.now())

    def _failed(self, why: str) -> None:
        """Log the first failure, and again when the certificate is close to expiry."""
        now = self._clock.now()
        claims = self._certificates.current.claims
        self._failures += 1
        self._not_before = now + retry_after(
            self._failures,
            not_after=claims.not_after,
            now=now,
            every=self._source.every,
            roll=self._random.random(),
        )
        if not self.last_error:
            log.warning("certificate.not_renewed", reason=why, expires_at=claims.not_after)
        if not self._is_urgent and freshness(claims.not_before, claims.not_after, now) in _URGENT:
            self._is_urgent = True
            log.error("certificate.expires", reason=why, expires_at=claims.not_after)
        self.last_error = why


async def write_issued(
    files: CertificateFiles, key: bytes, issued: Issued, *, known: bytes, now: datetime
) -> None:
    """Check and write a certificate. `known` are the roots to keep; may be empty.

    Raises SettingsError for an unusable certificate, or OSError.
    """
    try:
        roots = joined_roots(known or issued.roots_pem, issued.roots_pem)
    except ValueError as err:
        raise SettingsError("the authority has sent no root certificate") from err
    checked_key_pair(files, chain=issued.chain_pem, key=key, roots=roots, now=now)
    await asyncio.to_thread(
        write_files,
        [
            (files.roots, roots, PUBLIC),
            (files.key, key, PRIVATE),
            (files.certificate, issued.chain_pem, PUBLIC),
        ],
    )
