"""`get -o yaml | apply -f -` changes nothing, for every type, with a real scheduler."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog

from fuzz.corpus import FULL_SPECS
from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from shells.cli.conftest import CliResult, Run
from shells.scheduler.harness import a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore

Ctl = Callable[..., Coroutine[Any, Any, CliResult]]
OFFLOADED = {
    "id": "offloaded",
    "container": {"image": "nginx"},
    "placement": {"offload": "when-full", "offload_data": True, "return": "when-free"},
    "desired_state": "Stopped",
}
POOL = {
    "kind": "nodepool",
    "pool_id": "burst",
    "provider": "exec",
    "image": "debian-12",
    "sizes": [{"name": "small", "cpu_millicores": 1000, "memory_mb": 512, "hour_price": 0.1}],
    "max": 2,
    "spend_per_hour_max": 1.5,
    "labels": {"zone": "eu"},
    "taints": ["burst"],
    "options": {"programs": "proxmox"},
}


@pytest.fixture
async def real_ctl(run: Run, tmp_path: Path) -> AsyncIterator[Ctl]:
    """persysctl with a scheduler in this process."""
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(secrets_key_file=str(tmp_path / "key"))
    address = f"127.0.0.1:{settings.grpc_port}"

    async def ctl(*words: str, stdin: str = "") -> CliResult:
        return await asyncio.to_thread(run, *words, stdin=stdin, PERSYS_GRPC_ENDPOINT=address)

    with structlog.testing.capture_logs():  # logs of the scheduler are not output of persysctl
        async with a_cluster(store, settings):
            yield ctl
    await store.store.close()


@pytest.mark.parametrize(
    "spec", [*FULL_SPECS[:-1], OFFLOADED], ids=lambda spec: next(iter(spec.values()))
)
async def test_a_workload_that_is_shown_and_applied_again_is_unchanged(
    spec: dict[str, Any], real_ctl: Ctl, tmp_path: Path
) -> None:
    (tmp_path / "value").write_text("x")
    await real_ctl("secret", "put", "db", "--from-file", str(tmp_path / "value"))
    workload_id = spec.get("id") or spec["workload_id"]

    created = await real_ctl("apply", "-f", "-", stdin=json.dumps(spec))
    shown = await real_ctl("workload", "get", workload_id, "-o", "yaml")
    again = await real_ctl("apply", "-f", "-", stdin=shown.out)
    planned = await real_ctl("plan", "-f", "-", "-o", "name", stdin=shown.out)

    assert created.out == f"{workload_id}: created\n", created.err
    assert again.out == f"{workload_id}: unchanged\n", again.err
    assert planned.out == "\n"


async def test_a_node_pool_that_is_shown_and_applied_again_is_unchanged(real_ctl: Ctl) -> None:
    created = await real_ctl("apply", "-f", "-", stdin=json.dumps(POOL))
    shown = await real_ctl("nodepool", "get", "burst", "-o", "yaml")
    again = await real_ctl("apply", "-f", "-", stdin=shown.out)

    assert created.out == "nodepool/burst: created\n", created.err
    assert again.out == "nodepool/burst: unchanged\n", again.err
