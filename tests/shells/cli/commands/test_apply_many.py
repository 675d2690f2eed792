"""`persysctl apply` with many workloads: one request, and one that is refused affects no other."""

from pathlib import Path

import pytest

from persys.cli.framework.exit_codes import ExitCode
from persys.wire.gen.control.v1 import control_pb2
from shells.cli.conftest import Cluster, Run

NAMES = ["a", "b", "c"]


@pytest.fixture
def many(tmp_path: Path) -> str:
    documents = [f"id: {name}\ncontainer:\n  image: nginx\n" for name in NAMES]
    file = tmp_path / "many.yaml"
    file.write_text("---\n".join(documents), "utf-8")
    return str(file)


def test_the_workloads_of_a_file_are_sent_in_one_request(
    cluster: Cluster, ctl: Run, many: str
) -> None:
    result = ctl("apply", "-f", many)

    assert cluster.batches == [NAMES]
    assert result.out.splitlines() == ["a: created", "b: created", "c: created"]


def test_a_single_workload_is_sent_alone(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("id: a\ncontainer:\n  image: nginx\n", "utf-8")

    assert ctl("apply", "-f", str(file)).code == ExitCode.OK

    assert cluster.batches == []
    assert [one.workload_id for one in cluster.applied] == ["a"]


def test_an_older_scheduler_gets_one_request_per_workload(
    cluster: Cluster, ctl: Run, many: str
) -> None:
    cluster.is_older = True

    result = ctl("apply", "-f", many)

    assert result.code == ExitCode.OK
    assert cluster.batches == []
    assert [one.workload_id for one in cluster.applied] == NAMES


def test_a_refused_workload_is_reported_and_the_others_are_applied(
    cluster: Cluster, ctl: Run, many: str
) -> None:
    cluster.refused_ids = {"b": (control_pb2.INVALID_SPEC, "image: is forbidden")}

    result = ctl("apply", "-f", many)

    assert result.code == ExitCode.USAGE
    assert result.out.splitlines() == ["a: created", "c: created"]
    assert "error: b: refused" in result.err
    assert "image: is forbidden" in result.err
