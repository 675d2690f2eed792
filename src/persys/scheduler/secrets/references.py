"""References to secrets: which workloads and jobs have them, and their values when an order is sent.

No record contains a value. A reference that cannot be resolved fails the workload with the reason: if its
source does not reply or denies access, the failure is retried; if the secret does not exist, it is final.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from persys.core.secrets import Resolved, put_in, references_of
from persys.errors import InvalidError, NotFoundError, PersysError, UnavailableError
from persys.model.secret import Reference, Secret, StoredReference, VaultReference
from persys.model.spec import Spec
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Workload


class SecretReferences:
    def __init__(self) -> None:
        self._named: dict[str, frozenset[StoredReference]] = {}
        self._users: dict[str, set[str]] = {}

    def put(self, workload: Workload) -> None:
        """Update the references of a workload. One that is being deleted has none."""
        is_used = workload.desired is not Desired.DELETED
        self.put_spec(workload.id, workload.spec if is_used else None)

    def put_spec(self, user: str, spec: Spec | None) -> None:
        """`user`: the id of a workload, or kind and id of another object. None: it has no references."""
        named = _named_by(spec) if spec is not None else frozenset()
        if named == self._named.get(user, frozenset()):
            return
        self.drop(user)
        if named:
            self._named[user] = named
        for one in named:
            self._users.setdefault(one.name, set()).add(user)

    def drop(self, user: str) -> None:
        for one in self._named.pop(user, frozenset()):
            users = self._users.get(one.name, set())
            users.discard(user)
            if not users:
                self._users.pop(one.name, None)

    def users(self, name: str) -> list[str]:
        return sorted(self._users.get(name, ()))

    def versions(self, name: str) -> set[int]:
        """The versions that are referred to."""
        return {
            one.version
            for user in self._users.get(name, ())
            for one in self._named[user]
            if one.name == name and one.version
        }


def _named_by(spec: Spec) -> frozenset[StoredReference]:
    try:
        found = references_of(spec).values()
    except InvalidError:
        return frozenset()  # a record from before secrets existed: it has no references
    return frozenset(one for one in found if isinstance(one, StoredReference))


VAULT_SECONDS = 10.0
UNRESOLVED = "SecretUnresolved"


class SecretSource(Protocol):
    """Vault's KV engine, version 2."""

    async def read(self, path: str, version: int | None) -> Mapping[str, str]:
        """All fields. Raises NotFoundError, DeniedError, UnavailableError."""


class Resolver:
    def __init__(
        self, stored: Callable[[StoredReference], bytes], vault: SecretSource | None = None
    ) -> None:
        self._stored = stored
        self._vault = vault

    async def resolve(self, workload: Workload) -> Resolved | Failure:
        try:
            return await self._resolve(workload.spec)
        except PersysError as err:
            if workload.desired is Desired.STOPPED:
                return Resolved(workload.spec)  # stopping it needs no values
            return _failure(err)

    async def _resolve(self, spec: Spec) -> Resolved:
        references = references_of(spec)
        if not references:
            return Resolved(spec)
        values: dict[Reference, bytes] = {}
        read: dict[tuple[str, int], Mapping[str, str]] = {}
        for field, reference in references.items():
            if reference in values:
                continue
            match reference:
                case StoredReference():
                    values[reference] = self._stored(reference)
                case VaultReference(path=path, version=version):
                    if (path, version) not in read:
                        read[path, version] = await self._read(reference, field)
                    values[reference] = _field_of(read[path, version], reference)
        return put_in(spec, values)

    async def _read(self, reference: VaultReference, field: str) -> Mapping[str, str]:
        if self._vault is None:
            raise InvalidError(field, "refers to Vault, which is not configured in this scheduler")
        try:
            async with asyncio.timeout(VAULT_SECONDS):
                return await self._vault.read(reference.path, reference.version or None)
        except TimeoutError as err:
            raise UnavailableError(f"Vault did not reply within {VAULT_SECONDS:.0f} s") from err


def check_stored(spec: Spec, secrets: Mapping[str, Secret]) -> None:
    """Raises InvalidError for a secret or version that is not stored. Vault is checked at dispatch only."""
    for field, reference in references_of(spec).items():
        if not isinstance(reference, StoredReference):
            continue
        secret = secrets.get(reference.name)
        if secret is None:
            raise InvalidError(field, f"secret {reference.name} does not exist")
        if secret.version(reference.version) is None:
            kept = ", ".join(str(one.number) for one in secret.versions)
            raise InvalidError(
                field, f"secret {reference.name} has no version {reference.version}; it has {kept}"
            )


def _field_of(found: Mapping[str, str], reference: VaultReference) -> bytes:
    if reference.field not in found:
        raise NotFoundError("field of a secret in Vault", f"{reference.path}#{reference.field}")
    return found[reference.field].encode()


def _failure(err: PersysError) -> Failure:
    if isinstance(err, NotFoundError | InvalidError):
        return Failure(FailureReason.INVALID_SPEC, str(err), retryable=False, code=UNRESOLVED)
    return Failure(FailureReason.RUNTIME_ERROR, f"secrets: {err}", code=UNRESOLVED)
