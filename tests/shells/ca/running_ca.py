"""A real CA on its own port, with clients."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from persys.ca.app import Ca
from persys.ca.cli import run_command
from persys.ca.settings import CaSettings
from persys.client.ca.client import AuthorityClient, join
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.keys import Issued, key_pem, new_key, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.join_token import JoinToken, read_token
from persys.wire.ca.messages import TokenAnswer, TokenRequest

T = TypeVar("T")
AUTH_KEY = "0123456789abcdef0123456789abcdef"


@dataclass
class MovedClock:
    ahead: timedelta = timedelta()
    real: SystemClock = field(default_factory=SystemClock)

    def now(self) -> datetime:
        return self.real.now() + self.ahead

    def monotonic(self) -> float:
        return self.real.monotonic()


@dataclass
class RunningCa:
    """A CA with its folder and its clients."""

    ca: Ca
    settings: CaSettings
    clock: MovedClock
    folder: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ca.port}"

    def certificate(self, role: Role, name: str, *more: str) -> CertificateFiles:
        """Create a certificate on the CA host."""
        out = self.folder / f"{role}-{name}"
        words = ("certificate", "--role", role, "--name", name, "--out", str(out), *more)
        run_command([*words, "--dir", str(self.settings.dir)], {})
        return CertificateFiles(out / f"{role}.crt", out / f"{role}.key", out / "ca.crt")

    def client(self, files: CertificateFiles) -> AuthorityClient:
        return AuthorityClient([self.address], files, timeout=timedelta(seconds=20))

    async def as_admin(self, question: Callable[[AuthorityClient], T]) -> T:
        files = await asyncio.to_thread(self.certificate, Role.ADMIN, "ada")
        return await self.ask(files, question)

    async def ask(self, files: CertificateFiles, question: Callable[[AuthorityClient], T]) -> T:
        return await asyncio.to_thread(lambda: question(self.client(files)))

    async def on_thread(self, job: Callable[[], T]) -> T:
        """Run a call on the CA's thread, which owns the database connection."""
        return await asyncio.get_running_loop().run_in_executor(self.ca._thread, job)

    async def token(self, name: str = "n1", **more: object) -> JoinToken:
        request = TokenRequest("agent", name, **more)  # type: ignore[arg-type]  # each by its name
        response: TokenAnswer = await self.as_admin(lambda client: client.create_token(request))
        return read_token(response.token)

    async def join(
        self, token: JoinToken, *, name: str = "n1", hosts: tuple[str, ...] = ()
    ) -> Issued:
        request = new_request(new_key(), Identity(Role.AGENT, name), hosts)
        return await asyncio.to_thread(join, token, request)

    async def joined(self, name: str = "n1", hosts: tuple[str, ...] = ()) -> CertificateFiles:
        """Join an agent and write its files."""
        key = new_key()
        request = new_request(key, Identity(Role.AGENT, name), hosts)
        issued = await asyncio.to_thread(join, await self.token(name, hosts=hosts), request)
        return keep(self.folder / f"node-{name}", key_pem(key), issued)


def keep(folder: Path, key: bytes, issued: Issued) -> CertificateFiles:
    files = CertificateFiles(folder / "agent.crt", folder / "agent.key", folder / "ca.crt")
    write_files(
        [
            (files.roots, issued.roots_pem, PUBLIC),
            (files.certificate, issued.chain_pem, PUBLIC),
            (files.key, key, PRIVATE),
        ]
    )
    return files
