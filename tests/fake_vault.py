"""A fake Vault server, for responses that a real one does not give on demand."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class FakeVault:
    """Returns the configured responses of each path in order; the last one repeatedly."""

    def __init__(self) -> None:
        self.address = ""
        self.requests: list[tuple[str, str]] = []  # path and token
        self._answers: dict[str, list[web.Response]] = {}
        self.is_silent = False
        self.ended = asyncio.Event()

    def respond(self, path: str, *answers: Mapping[str, Any] | int) -> None:
        """Set the responses of a path. A number is a status without errors."""
        self._answers[path] = [
            web.Response(status=one, text='{"errors": []}', content_type="application/json")
            if isinstance(one, int)
            else web.json_response(one)
            for one in answers
        ]

    def respond_raw(self, path: str, answer: web.Response) -> None:
        self._answers[path] = [answer]

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/v1/")
        self.requests.append((path, request.headers.get("X-Vault-Token", "")))
        if self.is_silent:
            await self.ended.wait()
        responses = self._answers.get(path, [web.Response(status=404)])
        response = responses.pop(0) if len(responses) > 1 else responses[0]
        return web.Response(body=response.body, status=response.status, headers=response.headers)


@asynccontextmanager
async def a_fake_vault() -> AsyncIterator[FakeVault]:
    fake_vault = FakeVault()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake_vault.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fake_vault.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield fake_vault
    finally:
        fake_vault.ended.set()
        await runner.cleanup()
