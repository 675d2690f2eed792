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


SET = {
    "id": "web",
    "replicas": 2,
    "update": {"max_parallel": 2, "min_healthy": "0s", "canary": 1, "bake": "10m"},
    "container": {"image": "nginx", "ports": ["80"], "env": {"A": "1"}},
    "resources": {"cpu_millicores": 100},
}
SCALED = {
    "id": "api",
    "scale": {"min": 2, "max": 5, "cpu": "70%", "cooldown": "2m"},
    "container": {"image": "nginx"},
    "resources": {"cpu_millicores": 100},
}
EVERY_NODE = {"kind": "set", "id": "log-agent", "every": "node", "container": {"image": "nginx"}}
JOB = {
    "id": "backup",
    "job": {"completions": 2, "retries": 1, "deadline": "1h", "fail_on": [3]},
    "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
    "container": {"image": "nginx"},
}


@pytest.mark.parametrize("spec", [SET, SCALED, EVERY_NODE], ids=lambda spec: spec["id"])
async def test_a_set_that_is_shown_and_applied_again_is_unchanged(
    spec: dict[str, Any], real_ctl: Ctl
) -> None:
    set_id = spec["id"]

    created = await real_ctl("apply", "-f", "-", stdin=json.dumps(spec))
    shown = await real_ctl("get", set_id, "-o", "yaml")
    again = await real_ctl("apply", "-f", "-", stdin=shown.out)
    by_file = await real_ctl("apply", "-f", "-", stdin=json.dumps(spec))
    planned = await real_ctl("plan", "-f", "-", "-o", "name", stdin=shown.out)

    assert created.out == f"{set_id}: created\n", created.err
    assert again.out == f"{set_id}: unchanged\n", again.err
    assert by_file.out == f"{set_id}: unchanged\n", by_file.err
    assert planned.code != 2, planned.err


async def test_a_job_that_is_shown_and_applied_again_is_unchanged(real_ctl: Ctl) -> None:
    created = await real_ctl("apply", "-f", "-", stdin=json.dumps(JOB))
    shown = await real_ctl("get", "backup", "-o", "yaml")
    again = await real_ctl("apply", "-f", "-", stdin=shown.out)
    planned = await real_ctl("plan", "-f", "-", "-o", "name", stdin=json.dumps(JOB))

    assert created.out == "job/backup: created\n", created.err
    assert again.out == "job/backup: unchanged\n", again.err
    assert planned.out == "\n", planned.err


async def test_a_refusal_of_a_set_has_the_line_of_the_file(real_ctl: Ctl) -> None:
    text = "id: web\nreplicas: 2\ncontainer:\n  image: nginx\n  env: {A: 'secret://nothing'}\n"

    refused = await real_ctl("apply", "-f", "-", stdin=text)

    assert refused.code == 2
    assert "error: web: refused: standard input:5:12: container.env" in refused.err


async def test_the_commands_of_a_set_reach_a_real_scheduler(real_ctl: Ctl) -> None:
    await real_ctl("apply", "-f", "-", stdin=json.dumps(SET))
    changed = {**SET, "container": {"image": "nginx:2"}}
    async with asyncio.timeout(30):
        while "web-0\n" not in (await real_ctl("ps", "web", "-o", "name")).out:
            pass
    member = await real_ctl("workload", "delete", "web-0")

    updated = await real_ctl("apply", "-f", "-", stdin=json.dumps(changed))
    scaled = await real_ctl("scale", "web", "5")
    stopped = await real_ctl("stop", "web")
    history = await real_ctl("rollout", "history", "web", "-o", "name")
    undone = await real_ctl("rollout", "undo", "web")
    deleted = await real_ctl("delete", "web", "--wait")

    assert "~ container.image" in updated.out
    assert scaled.out == "web: being scaled to 5\n"
    assert stopped.out == "web: being stopped\n", stopped.err
    assert history.out == "2\n1\n"
    assert undone.out == "web: being rolled back\n", undone.err
    assert "workload web-0 is a member of set web: change the set" in member.err
    assert deleted.out.endswith("web: Deleted\n"), deleted.err


async def test_the_commands_of_a_job_reach_a_real_scheduler(real_ctl: Ctl) -> None:
    await real_ctl("apply", "-f", "-", stdin=json.dumps(JOB))

    started = await real_ctl("job", "run", "backup")
    run_id = started.out.split()[2]
    shown = await real_ctl("job", "get", "backup")
    cancelled = await real_ctl("job", "cancel", "backup")
    suspended = await real_ctl("job", "suspend", "backup")
    resumed = await real_ctl("job", "resume", "backup")
    deleted = await real_ctl("delete", "backup")

    assert started.out.startswith("job/backup: run backup-"), started.err
    assert run_id in shown.out
    assert cancelled.out == f"run {run_id} is cancelled\n", cancelled.err
    assert suspended.code == resumed.code == 0
    assert "; the next run starts in" in resumed.out
    assert deleted.out == "job/backup: being deleted\n", deleted.err


async def test_a_node_pool_that_is_shown_and_applied_again_is_unchanged(real_ctl: Ctl) -> None:
    created = await real_ctl("apply", "-f", "-", stdin=json.dumps(POOL))
    shown = await real_ctl("nodepool", "get", "burst", "-o", "yaml")
    again = await real_ctl("apply", "-f", "-", stdin=shown.out)

    assert created.out == "nodepool/burst: created\n", created.err
    assert again.out == "nodepool/burst: unchanged\n", again.err
