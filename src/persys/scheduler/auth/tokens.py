"""Access tokens of users: created and revoked one at a time, so that their number stays bounded."""

import secrets

from persys.core.auth import tokens
from persys.errors import NotFoundError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.identity import Caller, Token
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

_ALL = "tokens"


class Tokens:
    def __init__(self, cluster: ClusterState, committer: Committer, clock: Clock) -> None:
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._locks: KeyedLock[str] = KeyedLock()

    def all(self) -> list[Token]:
        """The newest first."""
        return sorted(self._cluster.tokens.values(), key=lambda token: token.created_at)[::-1]

    async def create(self, request: tokens.NewToken, by: Caller) -> tuple[Token, str]:
        """The token and its secret text, which is returned only here. Raises RefusedError."""

        async def attempt() -> tuple[Token, str]:
            drawn = tokens.TokenSecret(
                secrets.token_hex(tokens.ID_BYTES), secrets.token_hex(tokens.SECRET_BYTES)
            )
            known = list(self._cluster.tokens.values())
            token, over = tokens.make(request, drawn, by, known, now=self._clock.now())
            await self._put(token, over)
            return token, drawn.text

        async with self._locks.hold(_ALL):
            return await retry_on_conflict(attempt)

    async def revoke(self, token_id: str, by: str) -> None:
        async def attempt() -> None:
            token = self._cluster.tokens.get(token_id)
            if token is None:
                raise NotFoundError("token", token_id)
            text = f"token {token.id} of {token.identity}, by {by}"
            await self._committer.commit(
                Transaction(
                    done=lambda: self._drop((token,)),
                    drops=[keys.token_key(token_id)],
                    events=[Event(self._clock.now(), EventKind.TOKEN_REVOKED, text)],
                )
            )

        async with self._locks.hold(_ALL):
            await retry_on_conflict(attempt)

    async def _put(self, token: Token, over: tuple[Token, ...]) -> None:
        def done() -> None:
            self._drop(over)
            self._cluster.tokens[token.id] = token

        until = f"{token.expires_at:%Y-%m-%d %H:%M} UTC"
        limit = f" with the prefix {token.prefix}" if token.prefix else ""
        text = f"token {token.id} for {token.identity}{limit} until {until}, by {token.created_by}"
        await self._committer.commit(
            Transaction(
                done=done,
                puts={keys.token_key(token.id): token},
                drops=[keys.token_key(one.id) for one in over],
                events=[Event(token.created_at, EventKind.TOKEN_CREATED, text)],
            )
        )

    def _drop(self, gone: tuple[Token, ...]) -> None:
        for token in gone:
            self._cluster.tokens.pop(token.id, None)
