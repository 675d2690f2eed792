"""A third-party gateway as a program: `python -m third_party.gateway CONFIG.json`.

It does not forward the identity of its users, opens a connection per request, and treats every gRPC error
as a failure of the scheduler: NOT_FOUND too is answered with 502.
The config is read at each request, so that tests can change the behaviour of a running gateway.
"""

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import grpc
from aiohttp import web
from google.protobuf import json_format

from third_party import credentials
from third_party.contract import control

CALL_SECONDS = 10
DEFAULT_BEHAVIOUR: dict[str, Any] = {
    "answer_seconds": 0.0,  # the answer of the scheduler is held back for this time, except for reads
}


class Gateway:
    def __init__(self, config: Path) -> None:
        self._config = config
        self.settings = json.loads(config.read_text())

    def behaviour(self) -> dict[str, Any]:
        changed: dict[str, Any] = json.loads(self._config.read_text()).get("behaviour", {})
        return DEFAULT_BEHAVIOUR | changed

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self._health),
            web.post("/workloads/schedule", self._schedule),
            web.get("/workloads", self._list_workloads),
            web.get("/workloads/{id}", self._get_workload),
            web.delete("/workloads/{id}", self._delete_workload),
            web.post("/workloads/{id}/retry", self._retry_workload),
            web.get("/nodes", self._list_nodes),
            web.get("/nodes/{id}", self._get_node),
            web.get("/cluster/metrics", self._summary),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "service": "gateway"})

    async def _schedule(self, request: web.Request) -> web.Response:
        message = json_format.Parse(await request.text(), control.ApplyWorkloadRequest())
        return await self._call("ApplyWorkload", message)

    async def _list_workloads(self, request: web.Request) -> web.Response:
        filters = {key: request.query.get(key, "") for key in ("status", "node_id")}
        return await self._call("ListWorkloads", control.ListWorkloadsRequest(**filters))

    async def _get_workload(self, request: web.Request) -> web.Response:
        message = control.GetWorkloadRequest(workload_id=request.match_info["id"])
        return await self._call("GetWorkload", message)

    async def _delete_workload(self, request: web.Request) -> web.Response:
        message = control.DeleteWorkloadRequest(workload_id=request.match_info["id"])
        return await self._call("DeleteWorkload", message)

    async def _retry_workload(self, request: web.Request) -> web.Response:
        message = control.RetryWorkloadRequest(workload_id=request.match_info["id"])
        return await self._call("RetryWorkload", message)

    async def _list_nodes(self, request: web.Request) -> web.Response:
        message = control.ListNodesRequest(status=request.query.get("status", ""))
        return await self._call("ListNodes", message)

    async def _get_node(self, request: web.Request) -> web.Response:
        message = control.GetNodeRequest(node_id=request.match_info["id"])
        return await self._call("GetNode", message)

    async def _summary(self, request: web.Request) -> web.Response:
        return await self._call("GetClusterSummary", control.GetClusterSummaryRequest())

    async def _call(self, method: str, message: Any) -> web.Response:
        files, name = self.settings.get("tls", {}), self.settings.get("scheduler_name", "")
        try:
            async with credentials.dial(self.settings["scheduler"], files, name=name) as channel:
                call = getattr(control.stub(channel), method)
                response = await call(message, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as err:
            problem = {"error": f"{err.code().name}: {err.details()}"}
            return web.json_response(problem, status=502)
        if not method.startswith(("Get", "List")):
            await asyncio.sleep(self.behaviour()["answer_seconds"])
        plain = json_format.MessageToDict(response, preserving_proto_field_name=True)
        return web.json_response(plain)


def _context(files: dict[str, str]) -> ssl.SSLContext | None:
    if not files:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca"])
    context.load_cert_chain(files["cert"], files["key"])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def main(config: Path) -> None:
    gateway = Gateway(config)
    settings = gateway.settings
    app = web.Application()
    app.add_routes(gateway.routes())
    runner = web.AppRunner(app)
    await runner.setup()
    host, _, port = settings["listen"].partition(":")
    site = web.TCPSite(runner, host, int(port), ssl_context=_context(settings.get("tls", {})))
    await site.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
