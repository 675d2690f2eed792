"""persysctl node cordon, taint, drain, confirm-dead and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1.control_pb2 import DrainBlock, DrainView

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


def test_a_cordoned_node_is_shown_as_cordoned(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1")

    assert ctl("node", "cordon", "n1").code == 0
    assert "Ready (cordoned)" in ctl("node", "list").out
    assert ctl("node", "uncordon", "n1").code == 0
    assert "cordoned" not in ctl("node", "list").out


def test_a_taint_is_added_to_existing_taints(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1", taints=["gpu=old", "team=ml"])

    result = ctl("node", "taint", "n1", "gpu=new", "spare")

    assert result.code == 0
    assert result.out == (
        "node n1 is tainted: gpu=new, spare, team=ml; its present workloads keep running\n"
    )
    assert "Taints" in ctl("node", "get", "n1").out


def test_one_taint_or_all_taints_are_removed(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1", taints=["gpu=old", "spare", "team=ml"])

    assert "is tainted: spare, team=ml;" in ctl("node", "untaint", "n1", "gpu").out
    assert ctl("node", "untaint", "n1", "gpu").err == "node n1 has no taint gpu\n"
    assert ctl("node", "untaint", "n1").out == "node n1 has no taints\n"


def test_a_taint_is_required(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1", taints=["gpu"])

    assert ctl("node", "taint", "n1").code == 2
    assert list(cluster.nodes["n1"].taints) == ["gpu"]


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain", "confirm-dead", "remove"])
def test_an_unknown_node_is_refused(verb: str, ctl: Run) -> None:
    result = ctl("node", verb, "nowhere")

    assert result.code == 1
    assert "node not found: nowhere" in result.err


def test_a_drain_without_wait_prints_its_status(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1", drain=DrainView(state="draining", remaining=3))

    result = ctl("node", "drain", "n1", "--deadline", "5m")

    assert (result.code, result.out) == (0, "node n1 is draining: 3 remaining\n")
    assert cluster.drain_deadline == 300


def test_a_drain_that_is_complete_names_the_next_command(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1", drain=DrainView(state="drained"))

    result = ctl("node", "drain", "n1", "--wait")

    assert (result.code, result.out) == (0, "node n1 is drained\n")
    assert "`persysctl node uncordon n1`" in result.err


@pytest.mark.parametrize(
    ("state", "code"), [("drained", 0), ("overdue", 1), ("draining", 3)], ids=str
)
def test_the_exit_code_shows_whether_the_node_is_empty(
    state: str, code: int, cluster: Cluster, ctl: Run
) -> None:
    blocked = [DrainBlock(workload_id="db", reason="its data is on this node")]
    left = 0 if state == "drained" else 1
    cluster.add_node("n1", drain=DrainView(state=state, remaining=left, blocked=blocked[:left]))

    result = ctl("node", "drain", "n1", "--wait=600ms")

    assert result.code == code
    assert ("its data is on this node" in result.err) is bool(left)


def test_an_invalid_deadline_is_a_usage_error(ctl: Run) -> None:
    result = ctl("node", "drain", "n1", "--deadline", "soon")

    assert result.code == 2
    assert "--deadline" in result.err


def test_a_node_is_removed(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1")

    assert ctl("node", "remove", "n1").code == 0
    assert ctl("node", "list").out == "no nodes\n"


def test_tier_and_price_are_shown_when_a_node_is_in_a_higher_tier(
    cluster: Cluster, ctl: Run
) -> None:
    cluster.add_node("n1")
    assert "TIER" not in ctl("node", "list").out
    assert "TIER" in ctl("node", "list", "-o", "wide").out
    cluster.add_node("far", tier=1, core_hour_price=0.05, remote="north north.example:8085")

    rows = {line.split()[0]: line for line in ctl("node", "list").out.splitlines()}
    described = ctl("node", "get", "far").out

    assert rows["ID"].endswith("TIER   PRICE")
    assert rows["far"].split()[-2:] == ["1", "0.05"]
    assert rows["n1"].split()[-2:] == ["0", "-"]
    assert "0.05 per core and hour" in described
    assert "north north.example:8085" in described
    assert "per core" not in ctl("node", "get", "n1").out
