"""Getting a new certificate in time, with a new key, as long as the process lives.

It is asked for at half of its life, so there is as long again for an authority that is down to come back.
What would surprise: this writes files, and what is in use is swapped as if somebody else had written them.
"""

import asyncio
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

import structlog

from persys.core.renewal import Freshness, freshness, retry_after
from persys.errors import PersysError, SettingsError
from persys.infra.certificates import (
    CertificateFiles,
    Certificates,
    KeyPair,
    checked_key_pair,
    joined_roots,
)
from persys.infra.clock import Clock
from persys.infra.files import PRIVATE, PUBLIC, write_together
from persys.infra.keys import Issued, key_pem, new_key, new_request

log = structlog.get_logger()

LOOK_SECONDS = 1.0
# After a new certificate was taken and is not in use: the files are somebody else's too, or the disk is full.
UNUSED_SECONDS = 60.0
_URGENT = (Freshness.CRITICAL, Freshness.EXPIRED)


class CertificateSource(Protocol):
    async def issue(self, csr_pem: bytes) -> Issued:
        """A certificate for this request. Raises a PersysError or TimeoutError when there is none now."""


class Renewal:
    def __init__(
        self,
        certificates: Certificates,
        files: CertificateFiles,
        source: CertificateSource,
        clock: Clock,
        random: Random,
        *,
        every: timedelta | None = None,
    ) -> None:
        """`every` is the time between tries that an operator has set.

        Raises SettingsError for a certificate that nobody could renew.
        """
        identity = certificates.current.claims.identity
        if identity is None:
            raise SettingsError(f"{files.certificate}: names nobody that could ask for a new one")
        self._identity = identity
        self._certificates = certificates
        self._files = files
        self._source = source
        self._clock = clock
        self._random = random
        self._every = every
        self._failures = 0
        self._urged = False
        self._not_before: datetime | None = None  # no try before
        self.trouble = ""  # why the last try failed; empty when it did not

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._is_due():
                await self.renew()

    async def renew(self) -> bool:
        """Whether there is a new certificate in use now."""
        try:
            await self._fetch()
        except (PersysError, TimeoutError, OSError) as err:
            self._failed(str(err) or "no answer in time")
            return False
        self._failures = 0
        self._urged = False
        self._not_before = self._clock.now() + timedelta(seconds=UNUSED_SECONDS)
        if self.trouble:
            self.trouble = ""
            log.info("certificate.renewed_again")
        renewed = self._certificates.reload()
        if renewed:
            self._not_before = None
        return renewed

    def _is_due(self) -> bool:
        now = self._clock.now()
        claims = self._certificates.current.claims
        if freshness(claims.not_before, claims.not_after, now) is Freshness.FRESH:
            return False
        return self._not_before is None or now >= self._not_before

    async def _fetch(self) -> None:
        key = new_key()
        issued = await self._source.issue(new_request(key, self._identity, ()))
        pair = self._checked(key_pem(key), issued)
        await asyncio.to_thread(
            write_together,
            [
                (self._files.roots, pair.roots, PUBLIC),
                (self._files.key, pair.key, PRIVATE),
                (self._files.certificate, pair.chain, PUBLIC),
            ],
        )

    def _checked(self, key: bytes, issued: Issued) -> KeyPair:
        """What cannot be used never reaches the disk. Roots are added, so that others' stay believed."""
        try:
            roots = joined_roots(self._certificates.current.roots, issued.roots_pem)
        except ValueError as err:
            raise SettingsError("the authority has sent no root") from err
        return checked_key_pair(
            self._files, chain=issued.chain_pem, key=key, roots=roots, now=self._clock.now()
        )

    def _failed(self, why: str) -> None:
        """Said once, however long it lasts, and again when little time is left."""
        now = self._clock.now()
        claims = self._certificates.current.claims
        self._failures += 1
        self._not_before = now + retry_after(
            self._failures,
            not_after=claims.not_after,
            now=now,
            every=self._every,
            roll=self._random.random(),
        )
        if not self.trouble:
            log.warning("certificate.not_renewed", reason=why, expires_at=claims.not_after)
        if not self._urged and freshness(claims.not_before, claims.not_after, now) in _URGENT:
            self._urged = True
            log.error("certificate.expires", reason=why, expires_at=claims.not_after)
        self.trouble = why
