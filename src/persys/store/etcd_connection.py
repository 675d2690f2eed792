"""Calls to one of several etcd members: which member, who we are, how long, and what its errors mean.

A call goes to a member whose connection stands; one that fails is left for the next. A write that got no
answer is never sent again: it may have happened, and a second try would conflict with itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from persys.errors import SettingsError, StoreUnavailableError
from persys.store.etcd_member import Member

T = TypeVar("T")
Stubs = TypeVar("Stubs")
Metadata = tuple[tuple[str, str], ...]

_TOKEN_REFUSED = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        # What etcd says when users changed since the token was made, or when it wants one.
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
_MEANINGS = {
    grpc.StatusCode.UNAVAILABLE: "etcd cannot be reached",
    grpc.StatusCode.DEADLINE_EXCEEDED: "etcd gave no answer in time",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "etcd is out of space",
    grpc.StatusCode.UNAUTHENTICATED: "etcd refused the user or the certificate",
    grpc.StatusCode.PERMISSION_DENIED: "etcd does not permit this user to do this",
}


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """`prefix` is put before every key. An endpoint is host:port, also with http:// or https://."""

    endpoints: tuple[str, ...] = ("localhost:2379",)
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    prefix: str = ""
    deadline_seconds: float = 5.0


class EtcdAnswerError(StoreUnavailableError):
    """etcd, or the way to it, answered with an error. Never means that something is absent."""

    def __init__(self, err: grpc.aio.AioRpcError) -> None:
        self.code = err.code()
        meaning = _MEANINGS.get(self.code, f"etcd answered {self.code.name}")
        super().__init__(f"{meaning}: {err.details()}")


class EtcdConnection(Generic[Stubs]):
    def __init__(
        self,
        options: EtcdOptions,
        *,
        stubs: Callable[[grpc.aio.Channel], Stubs],
        authenticate: Callable[[Stubs, EtcdOptions], Awaitable[str]],
    ) -> None:
        """`authenticate` asks for a token; it is only used with a user."""
        self._options = options
        self._authenticate = authenticate
        self._members = [Member(one, _tls(options), stubs) for one in options.endpoints]
        if not self._members:
            raise SettingsError("ETCD_ENDPOINTS: at least one host:port is needed")
        self._current = 0
        self._token: str | None = None
        self._signing_in = asyncio.Lock()
        self._closed = False

    async def sign_in(self) -> None:
        """Raises SettingsError when etcd refuses the user; no answer is no reason to give up."""
        if not self._options.user:
            return
        try:
            async with asyncio.timeout(self._options.deadline_seconds):
                await self._metadata(await self._ready_member())
        except EtcdAnswerError as err:
            if err.code in _TOKEN_REFUSED:
                raise SettingsError(f"etcd user {self._options.user!r}: {err}") from err
        except (StoreUnavailableError, TimeoutError):
            return

    def forget_token(self) -> None:
        """The next call asks for a new one."""
        self._token = None

    async def call(
        self, method: Callable[[Stubs], Any], request: object, *, repeatable: bool
    ) -> Any:
        """One request, one answer."""

        async def send(stubs: Stubs, metadata: Metadata) -> Any:
            deadline_seconds = self._options.deadline_seconds
            return await method(stubs)(request, timeout=deadline_seconds, metadata=metadata)

        return await self._send(send, repeatable=repeatable)

    async def begin(self, method: Callable[[Stubs], Any], request: object) -> tuple[Any, Any]:
        """Open a stream with one request; the stream and its first answer. The caller cancels it."""

        async def send(stubs: Stubs, metadata: Metadata) -> tuple[Any, Any]:
            # A member cut off from its cluster would keep a stream open and say nothing.
            stream = method(stubs)(metadata=(*metadata, ("hasleader", "true")))
            try:
                await stream.write(request)
                return stream, await self.next_answer(stream)
            except BaseException:
                stream.cancel()
                raise

        return await self._send(send, repeatable=True)

    async def next_answer(self, stream: Any) -> Any:
        """Waits as long as it takes: the channel's keepalive notices a lost connection."""
        try:
            answer = await stream.read()
        except grpc.aio.AioRpcError as err:
            raise EtcdAnswerError(err) from err
        except asyncio.CancelledError:
            # A channel that closes cancels its streams, which looks as if this task were cancelled.
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():
                raise StoreUnavailableError("the store is closed") from None
            raise
        if answer is grpc.aio.EOF:
            raise StoreUnavailableError("etcd ended the stream")
        return answer

    async def close(self) -> None:
        self._closed = True
        for member in self._members:
            await member.channel.close()

    async def _send(
        self, send: Callable[[Stubs, Metadata], Awaitable[T]], *, repeatable: bool
    ) -> T:
        try:
            async with asyncio.timeout(self._options.deadline_seconds):
                return await self._try_members(send, repeatable=repeatable)
        except TimeoutError as err:
            self._leave(self._members[self._current])
            raise StoreUnavailableError(
                f"etcd gave no answer within {self._options.deadline_seconds:g} s"
            ) from err
        except asyncio.CancelledError:
            # Whoever asked had less patience than we: the next to ask shall not meet the same silence.
            self._leave(self._members[self._current])
            raise

    async def _try_members(
        self, send: Callable[[Stubs, Metadata], Awaitable[T]], *, repeatable: bool
    ) -> T:
        moves_left = len(self._members) - 1 if repeatable else 0
        tokens_left = 1 if self._options.user else 0
        while True:
            member = await self._ready_member()
            try:
                return await send(member.stubs, await self._metadata(member))
            except grpc.aio.AioRpcError as err:
                answer = EtcdAnswerError(err)
                answer.__cause__ = err
            except EtcdAnswerError as err:
                answer = err
            if answer.code in _TOKEN_REFUSED and tokens_left:
                tokens_left -= 1
                self._token = None
            elif answer.code is grpc.StatusCode.UNAVAILABLE and moves_left:
                moves_left -= 1
                self._leave(member)
            else:
                if answer.code is grpc.StatusCode.UNAVAILABLE:
                    self._leave(member)
                raise answer

    async def _ready_member(self) -> Member[Stubs]:
        patience = self._options.deadline_seconds / len(self._members)
        for _ in self._members:
            member = self._members[self._current]
            if await member.connect(patience_seconds=patience):
                return member
            self._leave(member)
        names = ", ".join(self._options.endpoints)
        raise StoreUnavailableError(f"etcd cannot be reached at {names}")

    def _leave(self, member: Member[Stubs]) -> None:
        """Others may have left it already; then the current member is not to blame."""
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    async def _metadata(self, member: Member[Stubs]) -> Metadata:
        if not self._options.user:
            return ()
        async with self._signing_in:
            if self._token is None:
                self._token = await self._fetch_token(member)
        return (("token", self._token),) if self._token else ()

    async def _fetch_token(self, member: Member[Stubs]) -> str:
        try:
            return await self._authenticate(member.stubs, self._options)
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return ""  # this etcd does not ask who we are
            raise EtcdAnswerError(err) from err


def _tls(options: EtcdOptions) -> grpc.ChannelCredentials | None:
    files = (options.ca, options.key, options.cert)
    if (options.cert is None) != (options.key is None):
        raise SettingsError("etcd TLS: a certificate and its key are needed together")
    wanted = any(files) or any(one.startswith("https://") for one in options.endpoints)
    if not wanted:
        return None
    try:
        ca, key, cert = (None if path is None else path.read_bytes() for path in files)
    except OSError as err:
        raise SettingsError(f"etcd TLS: {err.filename}: {err.strerror}") from err
    return grpc.ssl_channel_credentials(ca, key, cert)
