"""Certificates that were taken back before their end: the list of their serials, fetched now and then.

What would surprise: a list that cannot be had is no reason to refuse anybody, nor to forget whom the last one
named. That one is kept, over a restart too if there is a file for it; this is said once, and how old the list
is can be measured.
"""

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import structlog
from cryptography import x509

from persys.errors import PersysError, SettingsError
from persys.infra.clock import Clock
from persys.infra.files import PUBLIC, Stamp, stamp, write_whole

log = structlog.get_logger()

EVERY = timedelta(minutes=1)
LOOK = timedelta(seconds=1)  # at a file, which costs nothing as long as it stays as it is
_PEM = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----\s*", re.DOTALL)


class RevocationSource(Protocol):
    async def revoked(self) -> frozenset[str]:
        """Serials in hexadecimal digits. Raises a PersysError or TimeoutError when there is no list now."""


class Revocations:
    """One list, from one source."""

    def __init__(
        self,
        source: RevocationSource,
        clock: Clock,
        *,
        every: timedelta = EVERY,
        serials: frozenset[str] = frozenset(),
        kept: Path | None = None,
    ) -> None:
        """`serials` is what is known before the first look; `kept` is where that outlives a restart."""
        if every <= timedelta():
            raise SettingsError("PERSYS_TLS_CRL_INTERVAL=0s: expected more than nothing")
        self._source = source
        self._clock = clock
        self._every = every
        self._had_at = clock.monotonic()
        self._kept = kept
        self.serials = serials | _read_kept(kept)
        self.trouble = ""  # why the last look failed; empty when it did not

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._every.total_seconds())

    async def look(self) -> None:
        try:
            serials = await self._source.revoked()
        except (PersysError, TimeoutError, OSError) as err:
            self._failed(str(err) or "no answer in time")
            return
        self._had_at = self._clock.monotonic()
        if self.trouble:
            self.trouble = ""
            log.info("revocations.read_again", count=len(serials))
        if serials != self.serials:
            log.info("revocations.changed", count=len(serials))
            self.serials = serials
            await asyncio.to_thread(self._keep)

    def age_seconds(self) -> float:
        """Since it was had; since the start, if it never was."""
        return self._clock.monotonic() - self._had_at

    def _keep(self) -> None:
        if self._kept is None:
            return
        try:
            write_whole(self._kept, "\n".join(sorted(self.serials)).encode(), mode=PUBLIC)
        except OSError as err:
            log.warning("revocations.not_written", path=str(self._kept), reason=err.strerror)

    def _failed(self, why: str) -> None:
        if not self.trouble:
            log.warning("revocations.kept", reason=why, count=len(self.serials))
        self.trouble = why


class CrlFile:
    """A list that somebody else writes, in PEM or DER; in PEM several may stand together."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError when it cannot be used from the start."""
        self._path = path
        self._stamp: Stamp = stamp(path)
        self.serials = read_list(path)

    async def revoked(self) -> frozenset[str]:
        return await asyncio.to_thread(self._look)

    def _look(self) -> frozenset[str]:
        seen = stamp(self._path)
        if seen != self._stamp:
            self.serials = read_list(self._path)
            self._stamp = seen
        return self.serials


def _read_kept(path: Path | None) -> frozenset[str]:
    try:
        text = "" if path is None else path.read_text("ascii")
    except (
        OSError,
        ValueError,
    ):  # there is none yet, or it is garbage: the next one is had in a moment
        return frozenset()
    return frozenset(text.split())


def read_list(path: Path) -> frozenset[str]:
    """Raises SettingsError that names the file and what is wrong with it."""
    try:
        content = path.read_bytes()
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
    try:
        return serials_in(content)
    except ValueError as err:
        raise SettingsError(f"{path}: holds no list of revoked certificates") from err


def serials_in(content: bytes) -> frozenset[str]:
    """Of all lists in it, as claims have serials. ValueError: there is none that can be read."""
    return frozenset(f"{entry.serial_number:x}" for one in _lists(content) for entry in one)


def _lists(content: bytes) -> Iterator[x509.CertificateRevocationList]:
    blocks = _PEM.findall(content)
    if not blocks:
        yield x509.load_der_x509_crl(content)
    for block in blocks:
        yield x509.load_pem_x509_crl(block)
