"""The gateway process: configuration, invalid settings, graceful stop."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import yaml

from shells.gateway.running_gateway import RunningGateway, a_container
from shells.scheduler.harness import Cluster, free_ports

GATEWAY = Path(sys.executable).parent / "persys-gateway"


async def until_it_serves(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with session.get(f"{url}/health") as response:
                    assert response.status == 200
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)


async def test_it_serves_its_configuration_until_it_is_stopped(
    cluster: Cluster, tmp_path: Path
) -> None:
    port, public = free_ports(2)
    config = {
        "addr": "127.0.0.1",
        "port": port,
        "public_addr": "127.0.0.1",
        "public_port": public,
        "insecure": True,
        "audit_db": str(tmp_path / "audit.db"),
        "scheduler_addr": [f"127.0.0.1:{cluster.settings.grpc_port}"],
        "webhooks": [{"repository": "acme/shop", "secret": "s3cret"}],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    environ = {**os.environ, "PERSYS_GATEWAY_CONFIG": str(tmp_path / "config.yaml")}
    process = await asyncio.create_subprocess_exec(GATEWAY, env=environ)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}"
            await until_it_serves(session, url)
            await until_it_serves(session, f"http://127.0.0.1:{public}")
            async with session.get(f"{url}/api/v1/events/watch") as watch:
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(20):
                    assert await process.wait() == 0
                await watch.read()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_invalid_settings_are_named(tmp_path: Path) -> None:
    environ = {**os.environ, "PERSYS_GATEWAY_CLUSTER_CONFIG": str(tmp_path / "none.yaml")}
    result = subprocess.run(
        [GATEWAY, "-insecure", "--audit-db=memory"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 1
    assert "none.yaml" in result.stderr


async def test_a_running_request_completes_when_the_gateway_stops(
    api: RunningGateway, cluster: Cluster
) -> None:
    await cluster.join("n1")
    async with asyncio.TaskGroup() as group:
        requests = [
            group.create_task(api.ask("PUT", f"/api/v1/workloads/w{n}", json=a_container()))
            for n in range(20)
        ]
        await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        await api.gateway.stop()

    assert {one.result()[0] for one in requests} == {200}
