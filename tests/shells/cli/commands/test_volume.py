"""persysctl volume list, get and delete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1.control_pb2 import VolumeView

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


@pytest.fixture(autouse=True)
def volumes(cluster: Cluster) -> None:
    cluster.volumes = [
        VolumeView(
            node_id="n1",
            workload_id="web",
            name="data",
            driver="local",
            pool="local",
            size_bytes=5 << 30,
            used_bytes=3 << 20,
            state="attached",
            retain_policy="Delete",
            path="/volumes/web/data",
            fs_type="ext4",
        ),
        VolumeView(node_id="n2", workload_id="old", name="kept", driver="nfs", state="retained"),
    ]


def test_volumes_are_listed_with_their_size_and_unreachable_nodes(ctl: Run) -> None:
    listed = ctl("volume", "list")

    assert listed.out.splitlines()[1].split()[:7] == [
        "web/data",
        "n1",
        "local",
        "local",
        "5.0GiB",
        "3.0MiB",
        "Attached",
    ]
    assert "no limit" in listed.out
    assert "node n9 does not respond" in listed.err
    assert ctl("volume", "list", "-o", "name").out == "n1/web/data\nn2/old/kept\n"


def test_one_volume_is_shown_with_all_fields(ctl: Run) -> None:
    shown = ctl("volume", "get", "web/data")

    assert "/volumes/web/data" in shown.out
    assert json.loads(ctl("volume", "get", "web/data", "-o", "json").out)["fs_type"] == "ext4"


def test_a_volume_is_deleted_and_another_is_not_found(ctl: Run) -> None:
    result = ctl("volume", "delete", "old/kept")
    again = ctl("volume", "delete", "old/kept")
    missing = ctl("volume", "get", "old/kept")

    assert result.code == 0
    assert "deleted" in result.out
    assert again.code != 0
    assert "not found" in again.err
    assert missing.code != 0
    assert "not found" in missing.err


def test_a_volume_is_identified_by_workload_and_name(ctl: Run) -> None:
    refused = ctl("volume", "get", "data")

    assert refused.code != 0
    assert "expected WORKLOAD/NAME" in refused.err
