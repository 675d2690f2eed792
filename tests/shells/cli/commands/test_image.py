"""persysctl image add, list and remove."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc

from persys.wire.gen.control.v1.control_pb2 import ImageView
from shells.cli.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run


def test_a_file_is_uploaded_and_each_node_is_reported(
    ctl: Run, cluster: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "disk.qcow2"
    path.write_bytes(bytes(3_000_000))

    result = ctl("image", "add", "debian-12", str(path), "--sha256", "ab", "--node", "n1")

    assert (result.code, result.err) == (0, "")
    *progress, last = result.out.splitlines()
    assert last == "image debian-12 is on node n1 (2.9MiB, sha256 abc)"
    assert [line.split()[1] for line in progress] == [*["sending"] * 4, "verifying"]
    assert cluster.image_bytes == 3_000_000
    (start,) = cluster.images_begun
    assert (start.name, start.url, start.sha256) == ("debian-12", "", "ab")
    assert (list(start.node_ids), start.size_bytes) == (["n1"], 3_000_000)


def test_a_url_is_fetched_by_the_nodes(ctl: Run, cluster: Cluster) -> None:
    for url in ("https://images/debian.qcow2", "file:///srv/debian.qcow2"):
        assert ctl("image", "add", "debian", url, "--node", "n1", "--node", "n2").code == 0

    assert [start.url for start in cluster.images_begun] == [
        "https://images/debian.qcow2",
        "file:///srv/debian.qcow2",
    ]
    assert list(cluster.images_begun[0].node_ids) == ["n1", "n2"]
    assert cluster.image_bytes == 0


def test_a_node_without_the_image_is_named_and_the_command_fails(
    ctl: Run, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.image_problem = "there is no room for it"
    (tmp_path / "disk").write_bytes(b"x")

    result = ctl("image", "add", "debian", str(tmp_path / "disk"))

    assert result.code == 1
    assert "is on node n1" in result.out
    assert result.err == "node n2: there is no room for it\n"


def test_a_refusal_and_a_missing_file_are_reported(
    ctl: Run, cluster: Cluster, tmp_path: Path
) -> None:
    missing = ctl("image", "add", "debian", str(tmp_path / "none"))
    (tmp_path / "disk").write_bytes(b"x")
    cluster.abort = (grpc.StatusCode.FAILED_PRECONDITION, "no node runs machines")
    refused = ctl("image", "add", "debian", str(tmp_path / "disk"))

    assert (missing.code, refused.code) == (2, 1)
    assert "No such file" in missing.err
    assert "no node runs machines" in refused.err


def test_images_are_listed_with_their_nodes_and_users(ctl: Run, cluster: Cluster) -> None:
    cluster.images = [
        ImageView(
            name="debian-12",
            sha256="0123456789abcdef",
            format="qcow2",
            size_bytes=11 << 20,
            virtual_size_bytes=2 << 30,
            node_ids=["n1", "n2"],
            used_by=["db", "web"],
        )
    ]

    listed = ctl("image", "list")

    assert listed.out.splitlines()[1].split()[:7] == [
        "debian-12",
        "qcow2",
        "11MiB",
        "2.0GiB",
        "n1,n2",
        "0123456789ab",
        "db,web",
    ]
    assert "node n9: does not respond" in listed.err
    assert ctl("image", "list", "-o", "name").out == "debian-12\n"
    (shown,) = json.loads(ctl("image", "list", "-o", "json").out)
    assert shown["sha256"] == "0123456789abcdef"


def test_an_empty_list_shows_how_to_add_an_image(ctl: Run) -> None:
    assert "persysctl image add" in ctl("image", "list").out


def test_a_removal_names_the_nodes_that_refused(ctl: Run, cluster: Cluster) -> None:
    result = ctl("image", "remove", "debian")
    cluster.image_problem = "image debian is needed by web"
    refused = ctl("image", "remove", "debian", "--node", "n2")

    assert (result.code, result.out) == (0, "image debian is removed from node n1\n")
    assert (refused.code, refused.err) == (1, "node n2: image debian is needed by web\n")


def test_a_terminal_shows_the_progress(
    cluster: Cluster, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "disk").write_bytes(bytes(100_000_000))
    variables = {**environ, "PERSYS_GRPC_ENDPOINT": cluster.address, "TERM": "xterm"}

    terminal = Terminal(("image", "add", "debian", str(tmp_path / "disk")), variables)
    terminal.read_until(b"is on node n1")

    assert b" of 95MiB" in terminal.seen
    assert b" %" in terminal.seen
    assert terminal.end() == 0
