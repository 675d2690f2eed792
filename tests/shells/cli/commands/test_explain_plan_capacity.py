"""persysctl explain, plan and capacity, as text and for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import yaml

from persys.wire.gen.control.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

SPEC = "id: web\ncontainer:\n  image: nginx\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "web.yaml"
    path.write_text(SPEC)
    return str(path)


def a_waiting(node_count: int = 2) -> pb.ExplainWorkloadResponse:
    return pb.ExplainWorkloadResponse(
        workload_id="web",
        summary="waits: 2 nodes refuse it",
        nodes=[
            pb.NodeVerdict(
                node_id=f"n{number}", filter="cpu", detail="short of cpu", missing=500, unit="m"
            )
            for number in range(1, node_count + 1)
        ],
        changes=["free 500m cpu on n1", "uncordon n2"],
        counts=[
            pb.ReasonCount(filter="cpu", detail="short of cpu", nodes=9_000),
            pb.ReasonCount(filter="closed", detail="cordoned", nodes=1_000),
        ],
        node_count=10_000,
    )


def test_explain_lists_rejections_and_required_changes(cluster: Cluster, ctl: Run) -> None:
    cluster.explanation = a_waiting()

    result = ctl("explain", "web")

    assert result.code == 0
    assert result.out.splitlines()[0] == "web waits: 2 nodes refuse it"
    assert "n1     refused   short of cpu by 500m" in result.out
    assert "smallest first:\n  free 500m cpu on n1\n  uncordon n2\n" in result.out


def test_wide_explain_shows_the_required_change_of_each_node(cluster: Cluster, ctl: Run) -> None:
    cluster.explanation = a_waiting(1)
    cluster.explanation.nodes[0].change = "free 500m cpu on n1"

    assert "REQUIRED CHANGE" not in ctl("explain", "web").out
    assert "by 500m   free 500m cpu on n1" in ctl("explain", "web", "-o", "wide").out


def test_explain_shows_twenty_nodes_and_counts_the_rest_by_reason(
    cluster: Cluster, ctl: Run
) -> None:
    cluster.explanation = a_waiting(30)

    out = ctl("explain", "web").out

    assert out.count("refused   ") == cluster.explain_limit == 20
    assert "and 9980 more: 8980 short of cpu; 1000 cordoned\n" in out


def test_explain_as_json_includes_every_node(cluster: Cluster, ctl: Run) -> None:
    cluster.explanation = a_waiting(30)

    found = json.loads(ctl("explain", "web", "-o", "json").out)

    assert len(found["nodes"]) == 30
    assert cluster.explain_limit > 1_000_000


def test_explain_of_a_placed_workload_shows_the_chosen_node_with_its_score(
    cluster: Cluster, ctl: Run
) -> None:
    score = [pb.ScorePart(name="reserved", value=0.25, detail="25% reserved")]
    cluster.explanation = pb.ExplainWorkloadResponse(
        workload_id="web",
        assigned_node_id="n1",
        summary="runs on n1",
        nodes=[
            pb.NodeVerdict(node_id="n1", fits=True, score=score),
            pb.NodeVerdict(node_id="n2", fits=True, score=[pb.ScorePart(name="group", value=2)]),
        ],
        node_count=2,
        fit_count=2,
    )

    lines = ctl("explain", "web").out.splitlines()

    assert [line.split(maxsplit=2) for line in lines[3:]] == [
        ["n1", "chosen", "25% reserved"],
        ["n2", "fits", "group 2"],
    ]


def test_a_scheduler_that_does_not_support_the_request_is_reported(
    cluster: Cluster, ctl: Run, file: str
) -> None:
    cluster.abort = (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    expected = "error: not supported by this version of the peer\n"
    explained, planned = ctl("explain", "web"), ctl("plan", "-f", file)
    assert (explained.code, explained.err) == (1, expected)
    assert (planned.code, planned.err) == (2, expected)


def test_plan_shows_a_diff_and_a_summary_and_exits_with_1(
    cluster: Cluster, ctl: Run, file: str
) -> None:
    cluster.plans = [
        pb.WorkloadPlan(
            workload_id="web",
            action="update",
            current_node_id="n1",
            node_id="n1",
            changes=[
                pb.FieldChange(field="container.image", before="nginx:1", after="nginx:2"),
                pb.FieldChange(field="container.env.NEW", after="x"),
                pb.FieldChange(field="container.env.OLD", before="y"),
            ],
            displaces=["the copy on n1 is stopped and recreated"],
        ),
        pb.WorkloadPlan(workload_id="new", action="create", node_id="n2", reason="emptiest"),
    ]

    result = ctl("plan", "-f", file)

    assert result.code == 1
    assert cluster.planned == ["web"]
    assert result.out.splitlines() == [
        "~ web: update, stays on n1",
        "    ~ container.image    nginx:1 -> nginx:2",
        "    + container.env.NEW  x",
        "    - container.env.OLD  y",
        "    ! the copy on n1 is stopped and recreated",
        "+ new: create on n2 (emptiest)",
        "",
        "2 workloads: 1 to create, 1 to update. Nothing was written.",
    ]


def test_plan_shows_only_the_changed_lines_of_a_long_text(
    cluster: Cluster, ctl: Run, file: str
) -> None:
    before, after = "\n".join("abcdefgh"), "\n".join("abcdeFgh")
    change = pb.FieldChange(field="compose.inline_yaml", before=before, after=after)
    cluster.plans = [pb.WorkloadPlan(workload_id="web", action="update", changes=[change])]

    lines = ctl("plan", "-f", file).out.splitlines()

    assert [line.strip() for line in lines[2:7]] == ["@@ -5,3 +5,3 @@", "e", "-f", "+F", "g"]


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (pb.WorkloadPlan(workload_id="web", action="none"), 0),
        (pb.WorkloadPlan(workload_id="web", action="stop"), 1),
        (pb.WorkloadPlan(workload_id="web", action="create", would_wait=True), 2),
        (pb.WorkloadPlan(workload_id="web", action="refused", reason="no"), 2),
    ],
)
def test_the_exit_codes_of_plan_follow_diff(
    cluster: Cluster, ctl: Run, file: str, plan: pb.WorkloadPlan, code: int
) -> None:
    cluster.plans = [plan]

    assert ctl("plan", "-f", file).code == code
    assert ctl("plan", "-f", file, "-o", "yaml").code == code


def test_plan_has_the_same_content_as_yaml_and_json(cluster: Cluster, ctl: Run, file: str) -> None:
    cluster.plans = [pb.WorkloadPlan(workload_id="web", action="create")]

    as_yaml = yaml.safe_load(ctl("plan", "-f", file, "-o", "yaml").out)

    assert as_yaml == json.loads(ctl("plan", "-f", file, "-o", "json").out)
    assert as_yaml[0]["action"] == "create"


def test_plan_of_an_invalid_file_exits_with_2_without_a_request(cluster: Cluster, ctl: Run) -> None:
    result = ctl("plan", "-f", "-", stdin="id: web\ncontainer: {}\n")

    assert result.code == 2
    assert cluster.planned == []


def test_capacity_shows_fits_and_losses_and_exits_with_0(
    cluster: Cluster, ctl: Run, file: str
) -> None:
    cluster.capacity = pb.GetCapacityResponse(
        fits=3,
        nodes=[pb.NodeRoom(node_id="n1", fits=3, limited_by="short of memory")],
        survives_any_loss=True,
        losses=[pb.LossView(node_id="n1", bound=["db"]), pb.LossView(node_id="n2", moved=2)],
    )

    result = ctl("capacity", "-f", file)

    assert result.code == 0
    assert result.out.splitlines() == [
        "3 more of web fit",
        "",
        "NODE   FIT   LIMITED BY",
        "n1     3     short of memory",
        "",
        "Tolerates the loss of any one node",
        "LOST NODE   MOVED   UNPLACEABLE   BOUND TO THEIR DATA",
        "n1          0       -             db",
    ]


def test_capacity_exits_with_1_when_a_loss_is_not_tolerated(
    cluster: Cluster, ctl: Run, file: str
) -> None:
    stranded = [f"w{number}" for number in range(7)]
    cluster.capacity = pb.GetCapacityResponse(
        fits=3,
        losses=[pb.LossView(node_id="n1", stranded=stranded), pb.LossView(node_id="n2", moved=2)],
    )

    result = ctl("capacity", "-f", file)

    assert result.code == 1
    assert "Does not tolerate the loss of n1\n" in result.out
    assert "w0, w1, w2, w3, w4 and 2 more" in result.out


def test_capacity_exits_with_1_when_nothing_fits(cluster: Cluster, ctl: Run, file: str) -> None:
    cluster.capacity = pb.GetCapacityResponse(survives_any_loss=True)

    assert ctl("capacity", "-f", file).code == 1


def test_capacity_of_a_single_node_reports_the_only_node(
    cluster: Cluster, ctl: Run, file: str
) -> None:
    cluster.capacity = pb.GetCapacityResponse(
        unlimited=True,
        nodes=[pb.NodeRoom(node_id="n1", unlimited=True)],
        losses=[pb.LossView(node_id="n1", stranded=["web"])],
    )

    out = ctl("capacity", "-f", file).out

    assert "any number more of web fit" in out
    assert "Does not tolerate the loss of a node: n1 is the only one" in out


def test_capacity_needs_one_workload_with_a_spec(cluster: Cluster, ctl: Run) -> None:
    two = ctl("capacity", "-f", "-", stdin=f"{SPEC}---\n{SPEC.replace('web', 'api')}")
    no_spec = ctl("capacity", "-f", "-", stdin="id: web\ndesired_state: stopped\n")

    assert (two.code, no_spec.code) == (2, 2)
    assert "has 2" in two.err
    assert "web has no spec" in no_spec.err


def test_explain_has_a_column_for_tiers_and_prices_if_there_are_higher_tiers(
    cluster: Cluster, ctl: Run
) -> None:
    cluster.explanation = a_waiting(1)
    assert "TIER" not in ctl("explain", "web").out
    cluster.explanation.nodes.add(
        node_id="far",
        filter="tier",
        detail="in tier 1 (offload is never)",
        tier=1,
        core_hour_price=0.05,
    )

    lines = ctl("explain", "web").out.splitlines()

    assert "NODE   TIER        VERDICT   WHY" in lines
    assert "n1     0           refused   short of cpu by 500m" in lines
    assert "far    1 at 0.05   refused   in tier 1 (offload is never)" in lines


def test_capacity_counts_higher_tiers_separately(cluster: Cluster, ctl: Run, file: str) -> None:
    cluster.capacity = pb.GetCapacityResponse(
        fits=0,
        offload_fits=40,
        nodes=[
            pb.NodeRoom(node_id="n1", limited_by="short of cpu"),
            pb.NodeRoom(node_id="far", fits=40, limited_by="short of cpu", tier=1),
        ],
        survives_any_loss=True,
        losses=[pb.LossView(node_id="n1"), pb.LossView(node_id="n2")],
    )

    result = ctl("capacity", "-f", file)

    assert result.code == 0
    assert result.out.splitlines()[0] == "0 more of web fit in tier 0, 40 in higher tiers"
    assert "far    1      40    short of cpu" in result.out
