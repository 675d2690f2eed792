"""The list of revoked certificates, fetched at an interval.

When the list cannot be fetched, no caller is refused because of that, and the last list stays in use, after a
restart too if there is a file for it. The failure is logged once, and a metric has the age of the list.
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
from persys.infra.atomic_files import PUBLIC, Stamp, stamp, write_file
from persys.infra.clock import Clock

log = structlog.get_logger()

EVERY = timedelta(minutes=1)
FILE_CHECK_INTERVAL = timedelta(seconds=1)  # for a file, which is read only when it changes
_PEM = re.compile(rb"-----BEGIN X509 CRL-----.+?-----END X509 CRL-----\s*", re.DOTALL)


class RevocationSource(Protocol):
    async def revoked(self) -> frozenset[str]:
        """Serials in hexadecimal digits. Raises PersysError or TimeoutError."""


class Revocations:
    """The revocation list of one source."""

    def __init__(
        self,
        source: RevocationSource,
        clock: Clock,
        *,
        every: timedelta = EVERY,
        serials: frozenset[str] = frozenset(),
        cache_file: Path | None = None,
    ) -> None:
        """`serials` is the list before the first fetch; `cache_file` stores it for restarts."""
        if every <= timedelta():
            raise SettingsError("PERSYS_TLS_CRL_INTERVAL=0s: expected more than 0s")
        self._source = source
        self._clock = clock
        self._every = every
        self._had_at = clock.monotonic()
        self._cache_file = cache_file
        self.serials = serials | _read_cache(cache_file)
        self.last_error = ""  # the error of the last fetch; empty on success

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(self._every.total_seconds())

    async def refresh(self) -> None:
        try:
            serials = await self._source.revoked()
        except (PersysError, TimeoutError, OSError) as err:
            self._failed(str(err) or "no response in time")
            return
        self._had_at = self._clock.monotonic()
        if self.last_error:
            self.last_error = ""
            log.info("revocations.read_again", count=len(serials))
        if serials != self.serials:
            log.info("revocations.changed", count=len(serials))
            self.serials = serials
            await asyncio.to_thread(self._write_cache)

    def age_seconds(self) -> float:
        """Seconds since the last fetch, or since the start if there was none."""
        return self._clock.monotonic() - self._had_at

    def _write_cache(self) -> None:
        if self._cache_file is None:
            return
        try:
            write_file(self._cache_file, "\n".join(sorted(self.serials)).encode(), mode=PUBLIC)
        except OSError as err:
            log.warning("revocations.not_written", path=str(self._cache_file), reason=err.strerror)

    def _failed(self, why: str) -> None:
        if not self.last_error:
            log.warning("revocations.kept", reason=why, count=len(self.serials))
        self.last_error = why


class CrlFile:
    """A CRL file in PEM or DER that another program writes. A PEM file may contain several lists."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError if the file cannot be used at start-up."""
        self._path = path
        self._stamp: Stamp = stamp(path)
        self.serials = read_list(path)

    async def revoked(self) -> frozenset[str]:
        return await asyncio.to_thread(self._read_if_changed)

    def _read_if_changed(self) -> frozenset[str]:
        seen = stamp(self._path)
        if seen != self._stamp:
            self.serials = read_list(self._path)
            self._stamp = seen
        return self.serials


def _read_cache(path: Path | None) -> frozenset[str]:
    try:
        text = "" if path is None else path.read_text("ascii")
    except (
        OSError,
        ValueError,
    ):  # missing or damaged; the list is fetched again in a moment
        return frozenset()
    return frozenset(text.split())


def read_list(path: Path) -> frozenset[str]:
    """The revoked serials. Raises SettingsError with the file and the problem."""
    try:
        content = path.read_bytes()
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
    try:
        return serials_in(content)
    except ValueError as err:
        raise SettingsError(f"{path}: invalid revocation list: expected PEM or DER") from err


def serials_in(content: bytes) -> frozenset[str]:
    """The serials of all lists, in the format of claims. Raises ValueError for an invalid list."""
    return frozenset(f"{entry.serial_number:x}" for one in _lists(content) for entry in one)


def _lists(content: bytes) -> Iterator[x509.CertificateRevocationList]:
    blocks = _PEM.findall(content)
    if not blocks:
        yield x509.load_der_x509_crl(content)
    for block in blocks:
        yield x509.load_pem_x509_crl(block)
