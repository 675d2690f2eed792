"""The OpenAPI document is correct: responses to generated requests match it."""

import asyncio
import sys
from pathlib import Path

from persys.gateway.routes.openapi import document
from persys.wire.rest.routes import API, ROUTES
from shells.gateway.running_gateway import RunningGateway
from shells.scheduler.harness import Cluster

SECONDS_MAX = 100
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
ENDLESS = ("WatchEvents", "Exec")


def test_every_route_of_the_table_is_in_the_document() -> None:
    paths = document()["paths"]

    for route in ROUTES:
        assert paths[API + route.path][route.method.lower()]["operationId"] == route.rpc


async def test_the_openapi_document_needs_no_authentication(api: RunningGateway) -> None:
    status, response = await api.get("/openapi.json")

    assert status == 200
    assert response == document()


async def test_fuzzing_from_the_openapi_document_finds_nothing(
    api: RunningGateway, cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.join("n1")
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).parent / "schemathesis", "run"),
        f"http://127.0.0.1:{api.gateway.port}/openapi.json",
        *("--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing", "--max-examples", "3"),
        *(word for name in ENDLESS for word in ("--exclude-operation-id", name)),
        *(
            "--seed",
            "1",
            "--max-time",
            "12",
            "--request-timeout",
            "20",
            "--warnings",
            "off",
            "--no-color",
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert process.returncode == 0, output.decode()[-8000:]
