"""Builds and runs the CA process, and determines the addresses by which nodes reach it."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import structlog

from persys.ca.api.authorization import AuthorizedRoutes
from persys.ca.api.routes import Api, CfsslApi
from persys.ca.authority import Authority, CaPolicy
from persys.ca.database import CaDatabase
from persys.ca.key_files import DATABASE_FILE, Keys, open_keys
from persys.ca.metrics import Metrics
from persys.ca.settings import CaSettings
from persys.core.auth.certificate_renewal import renew_at
from persys.core.auth.enrolment import check_hosts
from persys.errors import InvalidError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock, SystemClock
from persys.infra.net.address import default_route_address
from persys.infra.net.http_server import HttpServer, server_context, show_certificate
from persys.infra.net.listener import HttpLimits
from persys.infra.process import serve
from persys.infra.tls.keys import fingerprint, key_pem, new_key

_LOCAL = ("localhost", "127.0.0.1", "::1")
_ANY = ("", "0.0.0.0", "::")


log = structlog.get_logger()
# Every request is short, so every connection has a short limit.
LIMITS = HttpLimits(
    connections_max=1024,
    connections_per_address_max=128,
    idle_seconds=15.0,
    unread_seconds=15.0,
    connection_seconds=30.0,
    closing_seconds=2.0,
)
REQUEST_SECONDS = 15.0
_CLEANUP_INTERVAL = timedelta(days=1)
_CHECK_SECONDS_MAX = 3600.0
_CHECK_SECONDS_MIN = 1.0


async def run_ca(settings: CaSettings, stop: asyncio.Event) -> None:
    ca = Ca(settings, SystemClock())
    try:
        await ca.start()
        await serve({"upkeep": ca.run}, stop)
    finally:
        await ca.stop()


class Ca:
    def __init__(
        self,
        settings: CaSettings,
        clock: Clock,
        limits: HttpLimits = LIMITS,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Raises SettingsError if the keys or the database cannot be opened."""
        self._settings = settings
        self._clock = clock
        self._passphrase = settings.passphrase()
        self.port = settings.port
        self.authority = open_authority(settings, clock, self._addresses)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="authority")
        by_key = CfsslApi(self.authority, key=settings.auth_key(), roles=settings.roles_by_key())
        metrics = Metrics(clock)
        metrics.watch_keys(lambda: self.authority.keys)
        handlers = {**Api(self.authority, metrics).handlers(), **by_key.handlers()}
        routes = AuthorizedRoutes(
            self.authority,
            clock,
            thread=self._thread,
            handlers=handlers,
            request_seconds=request_seconds,
            supervisor=Supervisor("ca", clock, metrics.registry),
            metrics=metrics,
        )
        self._context = server_context(self.authority.keys.roots_pem)
        self._listener = HttpServer(routes.app(), limits=limits, context=self._context)
        self._renew_at = clock.now()

    async def start(self) -> None:
        # The certificate does not contain the port, so it can be issued before the port is known.
        await self._on_thread(self._renew)
        self.port = await self._listener.start(self._settings.listen, self._settings.port)
        root = self.authority.keys.root
        log.info(
            "ca.serving",
            port=self.port,
            trust_domain=self.authority.trust_domain,
            root_fingerprint=fingerprint(root),
        )

    async def run(self) -> None:
        """Renew the CA's own certificate and delete old records."""
        cleanup_at = self._clock.now()
        while True:
            now = self._clock.now()
            if now >= self._renew_at:
                await self._on_thread(self._renew)
            if now >= cleanup_at:
                await self._on_thread(self.authority.delete_expired)
                cleanup_at = now + _CLEANUP_INTERVAL
            left = (min(self._renew_at, cleanup_at) - now).total_seconds()
            await asyncio.sleep(min(max(left, _CHECK_SECONDS_MIN), _CHECK_SECONDS_MAX))

    async def stop(self) -> None:
        await self._listener.stop()
        await self._on_thread(self.authority.database.close)
        self._thread.shutdown()

    def _renew(self) -> None:
        """Renew the server certificate, and the intermediate when it is due."""
        now = self._clock.now()
        self.authority.keys = _keys(self._settings, self._passphrase, self._clock)
        key = new_key()
        lifetime = self._settings.cert_ttl
        chain = self.authority.issue_own_certificate(
            key.public_key(), own_hosts(self._addresses()), lifetime
        )
        show_certificate(self._context, chain, key_pem(key))
        self._renew_at = renew_at(now, now + lifetime)

    def _addresses(self) -> Sequence[str]:
        return addresses(self._settings.advertise, self._settings.listen, self.port)

    async def _on_thread(self, job: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, job)


def open_authority(
    settings: CaSettings, clock: Clock, found_at: Callable[[], Sequence[str]]
) -> Authority:
    """Opens the keys first: the database belongs to an existing root."""
    keys = _keys(settings, settings.passphrase(), clock)
    database = CaDatabase(settings.dir / DATABASE_FILE, trust_domain=settings.trust_domain)
    policy = CaPolicy(settings.trust_domain, settings.cert_ttl, settings.keep)
    return Authority(keys, database, clock, policy, addresses=found_at)


def _keys(settings: CaSettings, passphrase: bytes, clock: Clock) -> Keys:
    return open_keys(
        settings.dir,
        trust_domain=settings.trust_domain,
        passphrase=passphrase,
        now=clock.now(),
    )


def addresses(advertised: Sequence[str], listening: str, port: int) -> list[str]:
    """host:port pairs; a joining node tries each."""
    if advertised:
        return list(advertised)
    if listening not in _ANY:
        return [f"[{listening}]:{port}" if ":" in listening else f"{listening}:{port}"]
    try:
        return [f"{default_route_address()}:{port}"]
    except OSError:  # no route: the CA is reachable locally only
        return [f"127.0.0.1:{port}"]


def own_hosts(found_at: Sequence[str]) -> tuple[str, ...]:
    hosts = [address.rpartition(":")[0].strip("[]") for address in found_at]
    return tuple(dict.fromkeys(_usable([*hosts, socket.gethostname(), *_LOCAL])))


def _usable(hosts: Sequence[str]) -> list[str]:
    usable: list[str] = []
    for host in hosts:
        try:
            usable += check_hosts([host])
        except InvalidError:
            continue  # for example a host name with an invalid underscore
    return usable
