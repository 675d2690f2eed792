"""The built-in secret store: put, list and delete; values are decrypted only for orders to agents.

Records hold encrypted values, and every scheduler needs the same key file. A scheduler with a missing or
different key logs an error, serves everything else, and never creates a second key.
"""

import structlog

from persys.core.secrets import VALUE_BYTES_MAX, check_name, with_version
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.infra.encryption import EncryptionKey, KeyFile
from persys.model.event import Event, EventKind
from persys.model.secret import Secret, SecretVersion, StoredReference
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

log = structlog.get_logger()

_USERS_NAMED_MAX = 10


class SecretStore:
    def __init__(
        self, cluster: ClusterState, committer: Committer, clock: Clock, key_file: KeyFile
    ) -> None:
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._key_file = key_file
        self._locks: KeyedLock[str] = KeyedLock()
        self._problem = ""

    async def put(self, name: str, value: bytes, *, by: str) -> Secret:
        """Store a new version. Running workloads keep the version they have."""
        check_name(name)
        if not value:
            raise InvalidError("value", "is empty: expected the secret")
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidError("value", f"{len(value)} bytes: expected at most {VALUE_BYTES_MAX}")

        async def attempt() -> Secret:
            secret = self._next(name, value, by)
            text = f"{name}, version {secret.newest.number}{_by(by)}"
            change = Transaction(
                done=lambda: self._cluster.secrets.__setitem__(name, secret),
                puts={keys.secret_key(name): secret},
                events=[Event(self._clock.now(), EventKind.SECRET_STORED, text)],
            )
            await self._committer.commit(change)
            return secret

        async with self._locks.hold(name):
            return await retry_on_conflict(attempt)

    async def delete(self, name: str, *, by: str) -> None:
        """Delete all versions. Raises RefusedError with the workloads that use the secret."""

        async def attempt() -> None:
            if name not in self._cluster.secrets:
                raise NotFoundError("secret", name)
            self._refuse_if_used(name)
            change = Transaction(
                done=lambda: self._forget(name),
                drops=[keys.secret_key(name)],
                events=[Event(self._clock.now(), EventKind.SECRET_DELETED, f"{name}{_by(by)}")],
            )
            await self._committer.commit(change)

        async with self._locks.hold(name):
            await retry_on_conflict(attempt)

    def open(self, reference: StoredReference) -> bytes:
        """The value. Raises NotFoundError, or RefusedError if this scheduler cannot decrypt it."""
        secret = self._cluster.secrets.get(reference.name)
        version = secret.version(reference.version) if secret is not None else None
        if version is None:
            raise NotFoundError("secret", _shown(reference))
        key = self._key_file.key()
        if key.id != version.key_id:
            raise RefusedError(self._another_key())
        return key.open(version.sealed, _bound(reference.name, version.number))

    def check_key(self) -> None:
        """Log once when stored secrets cannot be decrypted here, and once when they can again."""
        problem = ""
        if self._cluster.secrets:
            try:
                self._own_key()
            except RefusedError as err:
                problem = str(err)
        if problem and problem != self._problem:
            log.error("secrets.locked", reason=problem, secrets=len(self._cluster.secrets))
        elif self._problem and not problem:
            log.info("secrets.unlocked")
        self._problem = problem

    def _forget(self, name: str) -> None:
        self._cluster.secrets.pop(name, None)

    def _next(self, name: str, value: bytes, by: str) -> Secret:
        known = self._cluster.secrets.get(name)
        number = known.newest.number + 1 if known is not None else 1
        key = self._own_key()
        version = SecretVersion(
            number, key.seal(value, _bound(name, number)), key.id, self._clock.now(), by
        )
        in_use = self._cluster.secret_uses.versions(name)
        return with_version(known, name, version, in_use=in_use)

    def _own_key(self) -> EncryptionKey:
        """The key of all stored secrets; a new key is created only if there are no secrets."""
        stored = self._cluster.secrets.values()
        if not stored:
            return self._key_file.make()
        try:
            key = self._key_file.key()
        except RefusedError as err:
            raise RefusedError(
                f"{err}; {len(stored)} secrets are encrypted with this key: copy the key file from "
                "another scheduler or from a backup"
            ) from err
        if any(one.key_id != key.id for secret in stored for one in secret.versions):
            raise RefusedError(self._another_key())
        return key

    def _another_key(self) -> str:
        return (
            f"{self._key_file} does not contain the key that the secrets are encrypted with; "
            "all schedulers need the same file"
        )

    def _refuse_if_used(self, name: str) -> None:
        users: list[str] = list(self._cluster.secret_uses.users(name))
        pools = self._cluster.node_pools.values()
        users += [f"node pool {pool.pool_id}" for pool in pools if pool.credentials == name]
        if users:
            more = len(users) - _USERS_NAMED_MAX
            text = ", ".join(users[:_USERS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
            raise RefusedError(f"secret {name} is used by {text}; change or delete them first")


def _bound(name: str, number: int) -> bytes:
    return f"{name}@{number}".encode()


def _by(by: str) -> str:
    return f", by {by}" if by else ""


def _shown(reference: StoredReference) -> str:
    return f"{reference.name}@{reference.version}" if reference.version else reference.name
