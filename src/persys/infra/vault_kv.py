"""Secrets from Vault's KV engine, version 2: what people keep there beside what Vault makes itself."""

from collections.abc import Mapping

import msgspec

from persys.errors import NotFoundError, UnavailableError
from persys.infra.vault import Vault


class VaultKv:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def read(self, path: str, version: int | None = None) -> Mapping[str, str]:
        """What is kept there: words as they are, anything else as JSON. None: the newest version.

        The first word of the path is where the engine is mounted. NotFoundError: there is nothing, or that
        version was deleted. DeniedError: Vault refuses. UnavailableError: ask again later.
        """
        mount, _, rest = path.strip("/").partition("/")
        if not rest or not all(rest.split("/")) or {".", ".."} & {*rest.split("/"), mount}:
            raise NotFoundError("secret in Vault", f"{path} (expected mount/path)")
        params = {"version": str(version)} if version is not None else None
        answer = await self._vault.ask("GET", f"{mount}/data/{rest}", params=params)
        outer = answer.get("data")
        data = outer.get("data") if isinstance(outer, dict) else None
        if not isinstance(data, dict):
            raise UnavailableError(f"{mount} in Vault is no KV engine of version 2")
        return {key: _text(value) for key, value in data.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
