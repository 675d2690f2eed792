"""persysctl drift and orphans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from persys.wire.gen.control.v1.control_pb2 import DriftView

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


@pytest.fixture
def drifts(cluster: Cluster) -> list[DriftView]:
    cluster.drifts = [
        DriftView(node_id="n1", workload_id="ghost", type="orphan_on_agent", adoptable=True),
        DriftView(node_id="n2", workload_id="web", type="missing_on_agent", detail="not there"),
    ]
    return cluster.drifts


@pytest.mark.usefixtures("drifts")
def test_drifts_are_listed_with_their_type_and_detail(ctl: Run) -> None:
    listed = ctl("drift", "list").out

    assert "missing_on_agent" in listed
    assert "not there" in listed
    assert "ghost" in listed


@pytest.mark.usefixtures("drifts")
def test_orphans_are_listed_with_whether_they_can_be_adopted(ctl: Run) -> None:
    listed = ctl("orphans", "list").out

    assert "ADOPTABLE" in listed
    assert "yes" in listed
    assert "web" not in listed
    assert ctl("orphans", "list", "-o", "name").out == "n1/ghost\n"


def test_orphans_that_are_not_recorded_are_counted(cluster: Cluster, ctl: Run) -> None:
    cluster.orphans_unrecorded = 9800

    assert "and 9800 more orphans" in ctl("orphans", "list").out


@pytest.mark.usefixtures("drifts")
@pytest.mark.parametrize(
    ("verb", "expected"), [("adopt", "is adopted as a workload"), ("delete", "is being deleted")]
)
def test_an_orphan_is_adopted_or_deleted_and_another_is_refused(
    verb: str, expected: str, ctl: Run
) -> None:
    result = ctl("orphans", verb, "n1", "ghost")
    refused = ctl("orphans", verb, "n1", "web")

    assert result.code == 0
    assert expected in result.out
    assert refused.code == 1
    assert "orphan not found: web on n1" in refused.err


def test_a_scheduler_without_drift_support_is_reported(cluster: Cluster, ctl: Run) -> None:
    cluster.abort = (grpc.StatusCode.UNIMPLEMENTED, "unknown method ListDrifts")
    result = ctl("drift", "list")

    assert result.code == 1
    assert "not supported by this version" in result.err
