"""persysctl through a real gateway: every command works as with a scheduler."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.client import Gateway, RequestRefusedError, SchedulerClient
from persys.errors import UnavailableError
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc
from root_ca import Root
from shells.cli.conftest import CliResult, Cluster
from shells.cli.gateway import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shells.cli.conftest import Run

SPEC = "workload_id: web\nspec: {type: container, container: {image: nginx}}\n"


@pytest.fixture
def gateway_url(cluster: Cluster) -> Iterator[str]:
    with gateway(scheduler_addr=(cluster.address,)) as url:
        yield url


@pytest.fixture
def ctl(run: Run, gateway_url: str) -> Run:
    """persysctl connected to the stub cluster through the gateway."""

    def ctl(*words: str, stdin: str = "") -> CliResult:
        return run(*words, stdin=stdin, PERSYS_API_ENDPOINT=gateway_url)

    return ctl


def test_nodes_and_workloads_are_listed(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1", total_memory_mb=2048)
    cluster.add_node("n2")
    cluster.add_workload("web", assigned_node_id="n1")

    nodes = json.loads(ctl("node", "list", "-o", "json").out)
    assert [node["node_id"] for node in nodes] == ["n1", "n2"]
    assert nodes[0]["total_memory_mb"] == "2048"
    assert ctl("workload", "list", "--node", "n1", "-o", "name").out == "web\n"
    assert ctl("workload", "list", "--status", "Failed", "-o", "name").out == ""
    assert "3 (0 running" in ctl("cluster", "summary").out


def test_an_unknown_workload_is_not_found(ctl: Run) -> None:
    result = ctl("workload", "get", "a/b c")

    assert result.code == 1
    assert "workload not found: a/b c" in result.err


def test_a_workload_is_applied_stopped_and_deleted(cluster: Cluster, ctl: Run) -> None:
    assert ctl("apply", "-f", "-", stdin=SPEC).code == 0
    assert cluster.applied[0].spec.container.image == "nginx"

    assert ctl("workload", "stop", "web").code == 0
    assert cluster.applied[1].desired_state.lower() == "stopped"
    assert ctl("workload", "retry", "web").code == 0
    assert ctl("workload", "delete", "web").code == 0
    assert cluster.workloads["web"].status == "Deleting"


def test_a_refusal_has_the_same_text_as_from_a_scheduler(
    cluster: Cluster, run: Run, ctl: Run
) -> None:
    cluster.refusal = (control_pb2.INVALID_SPEC, "the image is missing")

    result = ctl("apply", "-f", "-", stdin=SPEC)
    completed = run("apply", "-f", "-", stdin=SPEC, PERSYS_GRPC_ENDPOINT=cluster.address)

    assert (result.code, result.err) == (completed.code, completed.err)
    assert "the image is missing" in result.err


def test_a_status_code_of_the_scheduler_keeps_its_meaning(cluster: Cluster, ctl: Run) -> None:
    cluster.abort = (grpc.StatusCode.INVALID_ARGUMENT, "spec: is empty")
    assert ctl("apply", "-f", "-", stdin=SPEC).code == 2

    cluster.abort = (grpc.StatusCode.PERMISSION_DENIED, "viewer/ann may not")
    denied = ctl("node", "list")
    assert denied.code == 1
    assert "viewer/ann may not" in denied.err


def test_nodes_are_cordoned_drained_and_removed(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1")

    assert ctl("node", "cordon", "n1").code == 0
    assert cluster.nodes["n1"].cordoned
    assert ctl("node", "drain", "n1", "--deadline", "90s").code == 0
    assert cluster.drain_deadline == 90
    assert ctl("node", "taint", "n1", "gpu").code == 0
    assert list(cluster.nodes["n1"].taints) == ["gpu"]
    refused = ctl("node", "cordon", "n9")
    assert refused.code == 1
    assert "node not found: n9" in refused.err


def test_plans_and_capacity_are_shown(cluster: Cluster, ctl: Run) -> None:
    cluster.plans = [control_pb2.WorkloadPlan(workload_id="web", action="create")]
    cluster.capacity = control_pb2.GetCapacityResponse(fits=7)

    assert "web: create" in ctl("plan", "-f", "-", stdin=SPEC).out
    assert cluster.planned == ["web"]
    assert "7" in ctl("capacity", "-f", "-", stdin=SPEC).out


def test_sets_are_applied_scaled_and_deleted(cluster: Cluster, ctl: Run) -> None:
    text = "id: web\nreplicas: 2\ncontainer: {image: nginx}\n"

    created = ctl("apply", "-f", "-", stdin=text)
    shown = ctl("set", "get", "web", "-o", "yaml")
    unchanged = ctl("apply", "-f", "-", stdin=shown.out)
    for words in (
        "scale web 5",
        "rollout pause web",
        "rollout resume web",
        "rollout promote web",
        "rollout undo web --to 1",
        "stop web",
        "set delete web",
    ):
        assert ctl(*words.split()).code == 0, words

    assert created.out == "web: created\n", created.err
    assert unchanged.out == "web: unchanged\n", unchanged.err
    assert [name for name, _, _ in cluster.set_calls] == [
        "scale",
        "pause",
        "resume",
        "promote",
        "undo",
        "delete",
    ]
    assert ctl("set", "list", "-o", "name").out == "web\n"


def test_a_refused_change_of_a_set_has_its_reason(cluster: Cluster, ctl: Run) -> None:
    cluster.set_refusal = "set web has no rollout in progress"

    result = ctl("rollout", "pause", "web")

    assert result.err == "error: web: refused: set web has no rollout in progress\n"


def test_jobs_are_applied_run_and_deleted(cluster: Cluster, ctl: Run) -> None:
    text = "id: backup\nschedule: 0 3 * * *\ncontainer: {image: backup}\n"

    created = ctl("apply", "-f", "-", stdin=text)
    for words in (
        "job list",
        "job get backup",
        "job run backup",
        "job suspend backup",
        "job resume backup",
        "job cancel backup r1",
        "job delete backup",
    ):
        assert ctl(*words.split()).code == 0, words

    assert created.out == "job/backup: created\n", created.err
    assert [name for name, _, _ in cluster.job_calls] == [
        "run",
        "suspend",
        "suspend",
        "cancel",
        "delete",
    ]


def test_events_are_listed_and_watched(cluster: Cluster, ctl: Run) -> None:
    cluster.events = [control_pb2.EventView(sequence=1, kind="WorkloadRunning", workload_id="web")]
    cluster.turns = [
        (
            [control_pb2.EventView(sequence=n, kind="NodeLost", node_id=f"n{n}") for n in (2, 3)],
            grpc.StatusCode.OUT_OF_RANGE,
        )
    ]

    assert "WorkloadRunning" in ctl("events", "--kind", "WorkloadRunning", "--since", "10m").out
    assert list(cluster.event_requests[0].kinds) == ["WorkloadRunning"]
    watched = ctl("events", "--watch", "--after", "1", "-o", "json")
    assert [json.loads(line)["sequence"] for line in watched.out.splitlines()] == ["2", "3"]
    assert "the oldest is 9" in watched.err
    assert cluster.watches[0].after_sequence == 1


def test_a_snapshot_is_saved_and_restored_byte_for_byte(cluster: Cluster, gateway_url: str) -> None:
    cluster.snapshot = [b"a" * 100_000, b"b" * 100_000]
    cluster.recovery = control_pb2.RecoveryAnswer(accepted=True, nodes=1, workloads=2)

    with SchedulerClient(Gateway(gateway_url)) as client:
        saved = b"".join(client.save_snapshot())
        response = client.restore_snapshot(iter([saved[:7], saved[7:]]))

    assert saved == b"a" * 100_000 + b"b" * 100_000
    assert cluster.restored == saved
    assert (response.nodes, response.workloads) == (1, 2)


def test_a_refused_restore_prints_the_reason(cluster: Cluster, gateway_url: str) -> None:
    cluster.recovery = control_pb2.RecoveryAnswer(accepted=False, reason="the cluster is not empty")

    with (
        SchedulerClient(Gateway(gateway_url)) as client,
        pytest.raises(RequestRefusedError, match="not empty"),
    ):
        client.restore_snapshot([b"x"])


def test_a_truncated_snapshot_is_an_error(cluster: Cluster, gateway_url: str) -> None:
    cluster.snapshot = [b"a" * 100_000]
    cluster.abort = (grpc.StatusCode.INTERNAL, "the store is gone")

    with SchedulerClient(Gateway(gateway_url)) as client, pytest.raises(UnavailableError):
        list(client.save_snapshot())


def test_an_image_is_sent(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "image"
    file.write_bytes(b"x" * 1_000_000)

    added = ctl("image", "add", "debian-12", str(file), "--node", "n1", "--sha256", "ab" * 32)

    assert added.code == 0, added.err
    assert cluster.image_bytes == 1_000_000
    assert (cluster.images_begun[0].name, list(cluster.images_begun[0].node_ids)) == (
        "debian-12",
        ["n1"],
    )


def test_a_refused_image_is_not_uploaded(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    cluster.abort = (grpc.StatusCode.FAILED_PRECONDITION, "no node runs machines")
    file = tmp_path / "image"
    file.write_bytes(b"x" * 5_000_000)

    added = ctl("image", "add", "debian-12", str(file))

    assert added.code == 1
    assert "no node runs machines" in added.err


def test_the_mode_is_noted_on_standard_error(cluster: Cluster, ctl: Run) -> None:
    cluster.mode.mode = "degraded"

    result = ctl("node", "list")

    assert "degraded mode" in result.err
    assert "12s old" in result.err


def test_an_unreachable_gateway_is_named(run: Run, unused_address: str) -> None:
    result = run("node", "list", "--api", f"http://{unused_address}")

    assert result.code == 4
    assert unused_address in result.err
    assert "--api URL" in result.err


def test_an_unreachable_scheduler_is_reported_by_the_gateway(run: Run, unused_address: str) -> None:
    with gateway(scheduler_addr=(unused_address,)) as url:
        result = run("node", "list", "--api", url)

    assert result.code == 4


def test_ids_are_completed_through_the_gateway(
    cluster: Cluster, run: Run, gateway_url: str
) -> None:
    cluster.add_workload("web")

    result = run("__complete", "--", "--api", gateway_url, "workload", "get", "w")

    assert result.out == "web\tRunning\n"


def test_a_volume_is_deleted_on_its_node(cluster: Cluster, ctl: Run) -> None:
    cluster.volumes = [
        control_pb2.VolumeView(node_id=node, workload_id="db", name=name)
        for node, name in (("n1", "data"), ("n1", "both"), ("n2", "both"))
    ]

    deleted = ctl("volume", "delete", "db/data")
    ambiguous = ctl("volume", "delete", "db/both")

    assert deleted.code == 0, deleted.err
    assert (ambiguous.code, "n1, n2" in ambiguous.err) == (2, True)
    assert ctl("volume", "delete", "db/nothing").code == 1


def test_the_newest_events_come_in_the_same_order(cluster: Cluster, run: Run, ctl: Run) -> None:
    cluster.events = [control_pb2.EventView(sequence=n, kind="NodeLost") for n in range(1, 6)]
    words = ("events", "--limit", "2", "-o", "name")

    result = ctl(*words)

    assert result.out == run(*words, PERSYS_GRPC_ENDPOINT=cluster.address).out == "4\n5\n"


@pytest.fixture
def secure(root: Root) -> Iterator[tuple[Cluster, str]]:
    """A scheduler with TLS behind a gateway with TLS."""
    files = root.write(Role.SCHEDULER, "s1")
    server = grpc.server(ThreadPoolExecutor(4))
    cluster = Cluster()
    control_pb2_grpc.add_AgentControlServicer_to_server(cluster, server)
    credentials = grpc.ssl_server_credentials(
        [(files.key.read_bytes(), files.certificate.read_bytes())], root.pem, True
    )
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    with gateway(root.tls(Role.GATEWAY, "g1"), scheduler_addr=(address,)) as url:
        yield cluster, url
    server.stop(None).wait()


def test_a_client_certificate_authenticates_at_the_gateway(
    secure: tuple[Cluster, str], run: Run, root: Root
) -> None:
    own = root.variables(root.write(Role.ADMIN, "me"))

    result = run("node", "list", "--api", secure[1], PERSYS_INSECURE="", **own)

    assert result.code == 0, result.err


def test_exec_works_over_tls(
    secure: tuple[Cluster, str], run: Run, root: Root, tmp_path: Path
) -> None:
    cluster, url = secure
    own = root.variables(root.write(Role.ADMIN, "me"))
    file = tmp_path / "image"
    file.write_bytes(b"x" * 3_000_000)

    sent = run("image", "add", "debian-12", str(file), "--api", url, PERSYS_INSECURE="", **own)
    result = run("exec", "web", "--api", url, "--", "cat", PERSYS_INSECURE="", **own)

    assert (sent.code, cluster.image_bytes) == (0, 3_000_000), sent.err
    assert (result.code, result.out) == (7, "[cat]"), result.err


def test_a_token_alone_authenticates_if_the_scheduler_accepts_it(
    secure: tuple[Cluster, str], run: Run, root: Root, tmp_path: Path
) -> None:
    roots = tmp_path / "ca.crt"
    roots.write_bytes(root.pem)

    result = run(
        "node", "list", "--api", secure[1], "--ca", str(roots), PERSYS_TOKEN="psk_a_b",
        PERSYS_INSECURE="",
    )  # fmt: skip

    assert result.code == 0, result.err


def test_a_gateway_of_another_ca_is_not_trusted(
    secure: tuple[Cluster, str], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Root(tmp_path / "other")
    own = other.variables(other.write(Role.ADMIN, "me"))

    result = run("node", "list", "--api", secure[1], PERSYS_INSECURE="", **own)

    assert result.code == 4
    assert "is not trusted" in result.err


def test_insecure_with_an_https_url_names_the_fix(run: Run) -> None:
    result = run("node", "list", "--api", "https://127.0.0.1:1")

    assert result.code == 2
    assert "http://" in result.err


def follow(cluster: Cluster) -> None:
    view = cluster.add_workload("shop", type="compose", metadata={"compose.commit": "a" * 40})
    view.spec.type = "compose"
    view.spec.compose.git_repo = "https://git.example/team/shop.git"
    view.spec.compose.git_ref = "main"
    cluster.add_workload("web")


def test_gitops_lists_workloads_directly_and_through_the_gateway(
    cluster: Cluster, run: Run, ctl: Run
) -> None:
    follow(cluster)

    result = run("gitops", "-o", "json", PERSYS_GRPC_ENDPOINT=cluster.address)
    completed = ctl("gitops", "-o", "json")

    (expected,) = json.loads(result.out)
    (report,) = json.loads(completed.out)
    assert expected == {
        "workload_id": "shop",
        "repository": "git.example/team/shop",
        "branch": "main",
        "commit": "a" * 40,
        "status": "Running",
    }
    assert {**report, **expected} == report
    assert "git.example/team/shop" in ctl("gitops").out


def test_clusters_and_the_audit_log_need_a_gateway(cluster: Cluster, run: Run, ctl: Run) -> None:
    cluster.add_node("n1")
    ctl("node", "cordon", "n1")

    assert "1/1 healthy" in ctl("cluster", "list").out
    assert "CordonNode" in ctl("audit", "--limit", "5").out
    refused = run("audit", PERSYS_GRPC_ENDPOINT=cluster.address)
    assert refused.code == 1
    assert "--api URL" in refused.err


def test_one_of_several_clusters_is_selected(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    cluster.add_node("n1")
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "default_cluster_id: west\nclusters:\n"
        "  - {id: west, schedulers: [{id: w, address: '127.0.0.1:1'}]}\n"
        f"  - {{id: east, schedulers: [{{id: e, address: '{cluster.address}'}}]}}\n"
    )
    with gateway(cluster_config=str(file)) as url:
        named = run("node", "list", "-o", "name", "--api", url, "--cluster", "east")
        silent = run("node", "list", "--api", url)
        unknown = run("node", "list", "--api", url, "--cluster", "north")

    assert (named.code, named.out) == (0, "n1\n")
    assert silent.code == 4
    assert (unknown.code, "north" in unknown.err) == (1, True)
