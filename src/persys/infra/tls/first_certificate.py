"""Obtains the first certificate of a process that renews its certificates automatically.

A valid certificate on disk is used, even if its source is not reachable. An expired or invalid one is never
used: the problem is logged, and a new one is requested until the source issues it.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

import structlog
from cryptography import x509

from persys.errors import PersysError, SettingsError
from persys.infra.clock import Clock
from persys.infra.tls.certificates import CertificateFiles, read_key_pair
from persys.infra.tls.keys import key_pem, new_key
from persys.infra.tls.renewal import CertificateSource, write_issued
from persys.model.identity import Identity

log = structlog.get_logger()

PAUSE = timedelta(seconds=60)


async def ensure_certificate(
    files: CertificateFiles,
    identity: Identity,
    source: CertificateSource,
    clock: Clock,
    stop: asyncio.Event,
) -> bool:
    """Wait for a usable certificate. False if the process is stopped before."""
    if _is_usable(files, clock):
        return True
    logged = ""
    while not stop.is_set():
        last_error = await _try(files, identity, source, clock)
        if not last_error:
            log.info("certificate.issued", identity=str(identity))
            return True
        if last_error != logged:
            logged = last_error
            log.error("certificate.awaited", reason=last_error, served="nothing until it is issued")
        await _pause(source.every or PAUSE, stop)
    return False


def _is_usable(files: CertificateFiles, clock: Clock) -> bool:
    """An invalid certificate is logged as an error; a missing one is normal at the first start."""
    try:
        read_key_pair(files, clock.now())
    except SettingsError as err:
        if files.certificate.exists() or files.key.exists():
            log.error("certificate.unusable", reason=str(err), instead="a new one is requested")
        return False
    return True


async def _try(
    files: CertificateFiles, identity: Identity, source: CertificateSource, clock: Clock
) -> str:
    """Request a certificate. Returns the error, or "" on success."""
    key = new_key()
    try:
        issued = await source.issue(source.request(key, identity))
        known = await asyncio.to_thread(_roots, files.roots)
        await write_issued(files, key_pem(key), issued, known=known, now=clock.now())
    except (PersysError, TimeoutError, OSError) as err:
        return str(err) or "no response in time"
    return ""


def _roots(path: Path) -> bytes:
    """The roots in the file stay trusted."""
    try:
        pem = path.read_bytes()
        x509.load_pem_x509_certificates(pem)
    except (FileNotFoundError, ValueError):
        return b""
    return pem


async def _pause(span: timedelta, stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(span.total_seconds()):
            await stop.wait()
    except TimeoutError:
        return
