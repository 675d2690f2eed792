"""Secrets from the command line, against a real scheduler."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore


class CliResult(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(secrets_key_file=str(tmp_path / "key"))) as cluster:
        yield cluster


async def ctl(cluster: Cluster, *words: str, stdin: bytes = b"", **variables: str) -> CliResult:
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "persysctl",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "HOME": "/nonexistent",
            "PERSYS_INSECURE": "true",
            "PERSYS_GRPC_ENDPOINT": f"127.0.0.1:{cluster.settings.grpc_port}",
            **variables,
        },
    )
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return CliResult(process.returncode, out.decode(), err.decode())


async def test_a_secret_is_read_from_a_pipe_a_file_or_a_variable(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "value").write_bytes(b"\xffas it is\n")

    piped = await ctl(cluster, "secret", "put", "db", stdin=b"one\n")
    from_file = await ctl(cluster, "secret", "put", "db", "--from-file", str(tmp_path / "value"))
    from_env = await ctl(cluster, "secret", "put", "db", "--from-env", "VALUE", VALUE="three")

    assert piped.out == "secret db has version 1\n"
    assert from_file.out == "secret db has version 2\n"
    assert from_env.out == "secret db has version 3\n"


async def test_secrets_are_listed_with_their_users_and_deleted_when_unused(
    cluster: Cluster,
) -> None:
    await ctl(cluster, "secret", "put", "db", stdin=b"one")
    container = pb.ContainerSpec(image="nginx", env={"P": "secret://db"})
    spec = pb.WorkloadSpec(type="container", container=container)
    await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))

    listed = await ctl(cluster, "secret", "list")
    (shown,) = json.loads((await ctl(cluster, "secret", "list", "-o", "json")).out)
    again = await ctl(cluster, "secret", "put", "db", stdin=b"two")
    refused = await ctl(cluster, "secret", "delete", "db")
    await cluster.control.delete("web")
    deleted = await ctl(cluster, "secret", "delete", "db")

    assert listed.out.splitlines()[1].split()[:3] == ["db", "1", "web"]
    assert shown["used_by"] == ["web"]
    assert "web use the old version until `persysctl workload redeploy`" in again.err
    assert refused.code != 0
    assert "used by web" in refused.err
    assert deleted.out == "secret db is deleted, with all its versions\n"
    assert (await ctl(cluster, "secret", "list")).out == "no secrets\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from-file", "/nonexistent"), "--from-file: /nonexistent: No such file"),
        (("--from-env", "NOTHING"), "--from-env: environment variable NOTHING is not set"),
        (("--from-env", "HOME", "--from-file", "x"), "cannot be combined"),
        (("the-value",), "unknown argument"),
    ],
)
async def test_a_value_that_cannot_be_read_is_an_error(
    cluster: Cluster, words: tuple[str, ...], problem: str
) -> None:
    result = await ctl(cluster, "secret", "put", "db", *words)

    assert result.code != 0
    assert problem in result.err
