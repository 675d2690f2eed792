"""The connection to the remote cluster. It is opened again when its token or certificates change.

A rotated token is therefore used without a restart. If there are several addresses, the next one is used
after a call without a response. Streams of the replaced connection end, and their readers open them again.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import structlog

from persys.client.grpc.channel import Trust
from persys.client.rest.connection import Gateway
from persys.client.scheduler import SchedulerClient
from persys.errors import SettingsError
from persys.federation.settings import FederationSettings
from persys.infra.atomic_files import CertificateFiles, Stamp, stamp
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

log = structlog.get_logger()


class Connection:
    """Safe for use by several threads."""

    def __init__(
        self,
        addresses: Sequence[str],
        open_client: Callable[[str], SchedulerClient],
        *files: Path,
    ) -> None:
        """`open_client` reads `files`. Raises SettingsError if they cannot be used."""
        self._addresses = addresses
        self._open = open_client
        self._files = files
        self._lock = threading.Lock()
        self._stamps = _stamps(files)
        self._number = 0  # of the address in use
        self.opened = 1  # how often it was opened
        self._client = open_client(self.address)

    @property
    def address(self) -> str:
        return self._addresses[self._number % len(self._addresses)]

    @property
    def stub(self) -> AgentControlStub:
        """While a changed file cannot be used, the last connection stays."""
        with self._lock:
            stamps = _stamps(self._files)
            if stamps != self._stamps:
                self._stamps = stamps
                self._reopen()
            return self._client.stub

    def close(self) -> None:
        self._client.close()

    def failed(self, opened: int) -> None:
        """Use the next address. `opened`: as it was before the call without a response."""
        with self._lock:
            if len(self._addresses) > 1 and opened == self.opened:
                self._number += 1
                self._reopen()

    def _reopen(self) -> None:
        try:
            client = self._open(self.address)
        except SettingsError as err:
            log.warning("remote.not_reopened", address=self.address, reason=str(err))
            return
        self._client.close()
        self._client = client
        self.opened += 1
        log.info("remote.reopened", address=self.address)


def _stamps(files: tuple[Path, ...]) -> tuple[Stamp, ...]:
    return tuple(stamp(file) for file in files)


def open_connection(settings: FederationSettings) -> Connection:
    """Raises SettingsError for an unreadable file."""
    named = (settings.token_file, settings.remote_ca, settings.remote_cert, settings.remote_key)
    files = [Path(name) for name in named if name]
    return Connection(settings.addresses, partial(_open_client, settings), *files)


def _open_client(settings: FederationSettings, address: str) -> SchedulerClient:
    token, trust = _token(settings.token_file), _trust(settings)
    roots = Path(settings.remote_ca) if settings.remote_ca else None
    if "://" not in address:
        return SchedulerClient(address, trust=trust, token=token, home=settings.cluster_id)
    gateway = Gateway(
        address,
        trust=trust,
        roots=roots,
        token=token,
        cluster=settings.remote_cluster,
        home=settings.cluster_id,
    )
    return SchedulerClient(gateway)


def _token(file: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise SettingsError(f"PERSYS_FEDERATION_TOKEN_FILE={file}: {err}") from err


def _trust(settings: FederationSettings) -> Trust | None:
    if not settings.remote_cert:
        return None
    if not settings.remote_ca:
        raise SettingsError(
            "PERSYS_FEDERATION_REMOTE_CERT is set: expected the CA certificates of the remote cluster "
            "in PERSYS_FEDERATION_REMOTE_CA"
        )
    files = CertificateFiles(
        Path(settings.remote_cert), Path(settings.remote_key), Path(settings.remote_ca)
    )
    return Trust(files)
