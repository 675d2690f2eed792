"""Calls to one of several etcd members: member selection, authentication, deadlines and error mapping.

A call goes to a connected member; after a failure the next member is used. A write without a response is
never sent again: it may have happened, and a second attempt would conflict with itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from persys.errors import SettingsError, StoreUnavailableError

Stubs = TypeVar("Stubs")

_OPTIONS = (
    # A page of large records or the backlog of a watch may be large; etcd limits its requests itself.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd disconnects clients that ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Separate connections per store: one store's lost connection does not affect another.
    ("grpc.use_local_subchannel_pool", 1),
)


class Member(Generic[Stubs]):
    def __init__(
        self,
        endpoint: str,
        tls: grpc.ChannelCredentials | None,
        stubs: Callable[[grpc.aio.Channel], Stubs],
    ) -> None:
        target = endpoint.removeprefix("http://").removeprefix("https://").rstrip("/")
        if not target.rpartition(":")[2].isdigit():
            raise SettingsError(
                f"ETCD_ENDPOINTS: invalid endpoint {endpoint!r}: expected HOST:PORT, for example "
                "etcd1:2379"
            )
        if tls is None:
            self.channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(target, tls, options=_OPTIONS)
        self.stubs = stubs(self.channel)

    async def connect(self, *, timeout_seconds: float) -> bool:
        """Whether the member is connected. A refused connection fails at once, others time out."""
        state = self.channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        try:
            async with asyncio.timeout(timeout_seconds):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        return False
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return True


T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]

_TOKEN_REFUSED = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        # The response of etcd if users changed after the token was issued, or if it requires one.
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
_MEANINGS = {
    grpc.StatusCode.UNAVAILABLE: "etcd cannot be reached",
    grpc.StatusCode.DEADLINE_EXCEEDED: "etcd did not respond in time",
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
    """etcd, or the connection to it, returned an error. Never means that a record is absent."""

    def __init__(self, err: grpc.aio.AioRpcError) -> None:
        self.code = err.code()
        meaning = _MEANINGS.get(self.code, f"etcd returned {self.code.name}")
        super().__init__(f"{meaning}: {err.details()}")


class EtcdConnection(Generic[Stubs]):
    def __init__(
        self,
        options: EtcdOptions,
        *,
        stubs: Callable[[grpc.aio.Channel], Stubs],
        authenticate: Callable[[Stubs, EtcdOptions], Awaitable[str]],
    ) -> None:
        """`authenticate` requests a token; it is only used with a user."""
        self._options = options
        self._authenticate = authenticate
        self._members = [Member(one, _tls(options), stubs) for one in options.endpoints]
        if not self._members:
            raise SettingsError(
                "ETCD_ENDPOINTS is empty: expected HOST:PORT, for example etcd1:2379"
            )
        self._current = 0
        self._token: str | None = None
        self._signing_in = asyncio.Lock()
        self._closed = False

    async def sign_in(self) -> None:
        """Raises SettingsError when etcd refuses the user. An unreachable etcd is not an error here."""
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
        """The next call requests a new one."""
        self._token = None

    async def call(
        self, method: Callable[[Stubs], Any], request: object, *, repeatable: bool
    ) -> Any:
        """One request, one response."""

        async def send(stubs: Stubs, metadata: Metadata) -> Any:
            deadline_seconds = self._options.deadline_seconds
            return await method(stubs)(request, timeout=deadline_seconds, metadata=metadata)

        return await self._send(send, repeatable=repeatable)

    async def begin(self, method: Callable[[Stubs], Any], request: object) -> tuple[Any, Any]:
        """Open a stream with one request; the stream and its first response. The caller cancels it."""

        async def send(stubs: Stubs, metadata: Metadata) -> tuple[Any, Any]:
            # A member without a leader would keep the stream open and send nothing.
            stream = method(stubs)(metadata=(*metadata, ("hasleader", "true")))
            try:
                await stream.write(request)
                return stream, await self.next_answer(stream)
            except BaseException:
                stream.cancel()
                raise

        return await self._send(send, repeatable=True)

    async def next_answer(self, stream: Any) -> Any:
        """Waits without a deadline: the keepalive of the channel detects a lost connection."""
        try:
            answer = await stream.read()
        except grpc.aio.AioRpcError as err:
            raise EtcdAnswerError(err) from err
        except asyncio.CancelledError:
            # A closed channel cancels its streams, which raises the same error as a cancelled task.
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
                f"etcd did not respond within {self._options.deadline_seconds:g} s"
            ) from err
        except asyncio.CancelledError:
            # The caller gave up before our deadline: the next call uses another member.
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
        timeout = self._options.deadline_seconds / len(self._members)
        for _ in self._members:
            member = self._members[self._current]
            if await member.connect(timeout_seconds=timeout):
                return member
            self._leave(member)
        names = ", ".join(self._options.endpoints)
        raise StoreUnavailableError(f"etcd cannot be reached at {names}")

    def _leave(self, member: Member[Stubs]) -> None:
        """Use the next member, unless another call has already switched."""
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
                return ""  # authentication is disabled in this etcd
            raise EtcdAnswerError(err) from err


def _tls(options: EtcdOptions) -> grpc.ChannelCredentials | None:
    files = (options.ca, options.key, options.cert)
    if (options.cert is None) != (options.key is None):
        raise SettingsError(
            "invalid etcd TLS settings: expected both ETCD_CERT and ETCD_KEY, or neither"
        )
    wanted = any(files) or any(one.startswith("https://") for one in options.endpoints)
    if not wanted:
        return None
    try:
        ca, key, cert = (None if path is None else path.read_bytes() for path in files)
    except OSError as err:
        raise SettingsError(f"etcd TLS: {err.filename}: {err.strerror}") from err
    return grpc.ssl_channel_credentials(ca, key, cert)
