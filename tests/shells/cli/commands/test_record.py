"""persysctl record, against a real scheduler with a damaged record."""

import json
from pathlib import Path

import pytest

from persys.store.port import Unit
from shells.cli.commands.test_secret import cluster as cluster
from shells.cli.commands.test_secret import ctl
from shells.scheduler.harness import Cluster

KEY = "/workloads/web"


@pytest.fixture(autouse=True)
async def damaged(cluster: Cluster) -> None:
    await cluster.stop()
    await cluster.store.store.commit([Unit(puts={KEY: b"damaged \xff"})])
    await cluster.start()


async def test_list_names_the_record_with_its_type_and_reason(cluster: Cluster) -> None:
    result = await ctl(cluster, "record", "list")

    assert result.code == 0
    assert result.out.splitlines()[0].split() == ["KEY", "TYPE", "STATE", "REASON"]
    assert result.out.splitlines()[1].split()[:3] == [KEY, "workload", "held"]


async def test_get_shows_bytes_that_are_not_text(cluster: Cluster) -> None:
    result = await ctl(cluster, "record", "get", KEY)

    assert "damaged \\xff" in result.out


async def test_get_as_json_has_the_key_and_the_version(cluster: Cluster) -> None:
    result = await ctl(cluster, "record", "get", KEY, "-o", "json")

    view = json.loads(result.out)
    assert view["record"]["key"] == KEY
    assert int(view["stored_version"]) > 0


async def test_the_stored_bytes_are_exported_to_a_private_file(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "web.record"

    result = await ctl(cluster, "record", "get", KEY, "--export", str(file))

    assert result.code == 0
    assert file.read_bytes() == b"damaged \xff"
    assert file.stat().st_mode & 0o777 == 0o600


async def test_an_existing_file_is_not_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "web.record"
    file.write_text("mine")

    result = await ctl(cluster, "record", "get", KEY, "--export", str(file))

    assert result.code == 2
    assert file.read_text() == "mine"


async def test_delete_without_confirmation_deletes_nothing_and_names_the_export(
    cluster: Cluster,
) -> None:
    result = await ctl(cluster, "record", "delete", KEY)

    assert result.code == 2
    assert f"persysctl record get {KEY} --export FILE" in result.err
    assert await cluster.store.store.get(KEY) is not None


async def test_a_confirmed_delete_prints_the_next_step(cluster: Cluster) -> None:
    result = await ctl(cluster, "record", "delete", KEY, "--confirm")

    assert result.code == 0, result.err
    assert result.out.startswith(f"record {KEY} is deleted; apply web again")
    assert (await ctl(cluster, "record", "list")).out == "no unreadable records\n"
