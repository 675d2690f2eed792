"""Reads secrets from Vault's KV engine, version 2."""

from collections.abc import Mapping

import msgspec

from persys.errors import NotFoundError, UnavailableError
from persys.infra.vault.session import Vault


class VaultKv:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def read(self, path: str, version: int | None = None) -> Mapping[str, str]:
        """The fields of a secret: texts unchanged, other values as JSON. `version` None: the latest.

        The first segment of the path is the mount of the engine. Raises NotFoundError for a missing secret or
        a deleted version, DeniedError, or UnavailableError.
        """
        mount, _, rest = path.strip("/").partition("/")
        if not rest or not all(rest.split("/")) or {".", ".."} & {*rest.split("/"), mount}:
            raise NotFoundError("secret in Vault", f"{path} (expected mount/path)")
        params = {"version": str(version)} if version is not None else None
        answer = await self._vault.ask("GET", f"{mount}/data/{rest}", params=params)
        outer = answer.get("data")
        data = outer.get("data") if isinstance(outer, dict) else None
        if not isinstance(data, dict):
            raise UnavailableError(f"{mount} in Vault is not a KV engine of version 2")
        return {key: _text(value) for key, value in data.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
