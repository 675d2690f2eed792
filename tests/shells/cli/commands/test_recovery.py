"""persysctl recovery and snapshot."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import grpc
import pytest

from builders import NOON, a_workload
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.stored import records, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run


def a_file(*, source: str = "store") -> bytes:
    node = Node(NodeId("n1"), Capabilities(4000, 8192), "10.0.0.1:50051", NOON)
    supervised = {
        keys.node_key(node.id): records.encode(node),
        keys.workload_key(a_workload().id): records.encode(a_workload()),
    }
    header = snapshot.Header(1, "the-cluster", NOON, 42, source, snapshot.count(supervised))
    return b"".join(snapshot.write(header, supervised.items()))


def test_recovery_status_shows_the_mode_and_the_next_step(cluster: Cluster, ctl: Run) -> None:
    cluster.mode = control_pb2.ModeView(
        mode="recovery",
        reason="its records are gone",
        store="etcd",
        workloads=2,
        workloads_on_agents=2,
        data_age_ms=61_000,
        next_steps=["persysctl recovery rebuild-from-agents    bring it back"],
    )
    result = ctl("recovery", "status")

    assert result.code == 0
    assert "its records are gone" in result.out
    assert "61s" in result.out
    assert result.out.rstrip().endswith("persysctl recovery rebuild-from-agents    bring it back")


def test_answers_from_memory_are_noted_on_standard_error(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1")
    assert ctl("node", "list").err == ""

    cluster.mode = control_pb2.ModeView(mode="degraded")
    result = ctl("node", "list")

    assert "n1" in result.out
    assert result.err == (
        "note: the scheduler is in degraded mode; this data comes from its memory and is 12s old; "
        "see `persysctl recovery status`\n"
    )


def test_a_snapshot_is_saved_completely_and_only_for_its_owner(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    complete = a_file()
    cluster.snapshot = [complete[:100], complete[100:]]
    result = ctl("snapshot", "save", str(tmp_path / "night.snapshot"))

    assert (result.code, result.out) == (
        0,
        f"saved {tmp_path / 'night.snapshot'}: 1 nodes, 1 workloads\n",
    )
    assert (tmp_path / "night.snapshot").read_bytes() == complete
    assert stat.S_IMODE((tmp_path / "night.snapshot").stat().st_mode) == 0o600


@pytest.mark.parametrize("ends", ["cut", "aborted"])
def test_an_incomplete_snapshot_leaves_no_file(
    ends: str, cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    cluster.snapshot = [a_file()[:100]]
    if ends == "aborted":
        cluster.abort = (grpc.StatusCode.UNAVAILABLE, "gone")
    result = ctl("snapshot", "save", str(tmp_path / "night.snapshot"))

    assert result.code != 0
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_is_inspected_without_a_scheduler(ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(a_file())
    result = ctl("snapshot", "inspect", str(tmp_path / "s"), "--scheduler", "127.0.0.1:1")

    assert result.code == 0
    assert "the-cluster" in result.out
    assert "10.0.0.1:50051" in result.out
    assert "web" in result.out
    as_json = json.loads(ctl("snapshot", "inspect", str(tmp_path / "s"), "-o", "json").out)
    assert (as_json["workloads"], as_json["revision"]) == (["web"], 42)


@pytest.mark.parametrize("verb", ["inspect", "restore"])
def test_a_truncated_file_is_refused_before_any_request(
    verb: str, cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "s").write_bytes(a_file()[:-9])
    result = ctl("snapshot", verb, str(tmp_path / "s"))

    assert result.code == 1
    assert "the file is truncated" in result.err
    assert cluster.restored == b""


def test_a_restore_prints_what_was_restored_and_what_was_not(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "s").write_bytes(a_file())
    cluster.recovery = control_pb2.RecoveryAnswer(
        accepted=True, nodes=1, workloads=1, left_out=["db on n2: its agent has no stored intent"]
    )
    result = ctl("snapshot", "restore", str(tmp_path / "s"))

    assert result.code == 0
    assert "1 nodes, 1 workloads" in result.out
    assert "db on n2" in result.out
    assert cluster.restored == a_file()


@pytest.mark.parametrize("verb", ["rebuild-from-agents", "accept-empty"])
def test_a_refused_recovery_prints_the_reason(verb: str, cluster: Cluster, ctl: Run) -> None:
    cluster.recovery = control_pb2.RecoveryAnswer(reason="expected recovery mode")
    result = ctl("recovery", verb)

    assert result.code == 1
    assert "expected recovery mode" in result.err


def test_a_scheduler_without_recovery_support_is_reported(cluster: Cluster, ctl: Run) -> None:
    cluster.abort = (grpc.StatusCode.UNIMPLEMENTED, "unknown method RebuildFromAgents")
    result = ctl("recovery", "rebuild-from-agents")

    assert result.code == 1
    assert "not supported by this version" in result.err
