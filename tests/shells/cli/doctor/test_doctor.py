"""persysctl doctor, with each problem reproduced."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc
import pytest

from persys import __version__
from persys.cli.doctor.cluster import check_clock
from persys.cli.doctor.finding import Level
from persys.cli.doctor.host import check_binding, check_disk
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc
from root_ca import LIFETIME, Root
from shells.cli.conftest import Cluster
from shells.cli.gateway import gateway
from shells.cli.sets_and_jobs import a_job, a_run, a_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from persys.infra.atomic_files import CertificateFiles
    from shells.cli.conftest import CliResult, Run


@pytest.fixture(autouse=True)
def healthy_cluster(cluster: Cluster) -> None:
    cluster.add_node("n1", agent_version=__version__)
    cluster.mode.version = __version__
    cluster.generated_at = lambda: datetime.now(UTC)


@pytest.fixture
def secure(root: Root) -> Iterator[str]:
    """The address of a scheduler with TLS."""
    files = root.write(Role.SCHEDULER, "s1")
    server = grpc.server(ThreadPoolExecutor(4))
    control_pb2_grpc.add_AgentControlServicer_to_server(Cluster(), server)
    credentials = grpc.ssl_server_credentials(
        [(files.key.read_bytes(), files.certificate.read_bytes())], root.pem, True
    )
    address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    yield address
    server.stop(None).wait()


def found(ended: CliResult, check: str) -> list[dict[str, str]]:
    """The findings of one check that are not ok, each with a fix."""
    findings = [each for each in json.loads(ended.out) if each["check"] == check]
    bad = [each for each in findings if each["level"] != "ok"]
    assert all(each["cure"] for each in bad)
    return bad


def worst_finding(ended: CliResult, check: str) -> str:
    (finding,) = found(ended, check)
    return f"{finding['level']}: {finding['what']}"


def flags(files: CertificateFiles) -> tuple[str, ...]:
    return ("--ca", str(files.roots), "--cert", str(files.certificate), "--key", str(files.key))


def test_a_healthy_cluster_has_no_findings(ctl: Run) -> None:
    result = ctl("doctor")

    assert result.code == 0, result.out
    assert "ok    nodes: 1 of 1 ready" in result.out
    assert "ok    clock" in result.out


def test_the_same_checks_run_through_a_gateway(cluster: Cluster, run: Run) -> None:
    with gateway(scheduler_addr=(cluster.address,)) as url:
        result = run("doctor", "--api", url)

    assert result.code == 0, result.out
    assert "ok    nodes: 1 of 1 ready" in result.out


def test_a_context_file_that_cannot_be_read(run: Run, home: Path) -> None:
    (home / ".persys").mkdir(parents=True)
    (home / ".persys" / "config.yaml").write_text("a: [")

    result = run("doctor", "-o", "json")

    assert result.code == 1
    assert "config.yaml" in worst_finding(result, "context")


def test_a_context_file_that_other_users_can_read(ctl: Run, home: Path) -> None:
    (home / ".persys").mkdir(parents=True)
    (home / ".persys" / "config.yaml").write_text("cluster: x\n")
    (home / ".persys" / "config.yaml").chmod(0o644)

    result = ctl("doctor", "-o", "json")

    assert result.code == 0, "a warning is no failure"
    assert worst_finding(result, "context").startswith("warn")


def test_a_name_that_does_not_resolve(run: Run) -> None:
    result = run("doctor", "-o", "json", "--scheduler", "nowhere.invalid:8085")

    assert result.code == 1
    assert "cannot resolve nowhere.invalid" in worst_finding(result, "endpoint")


def test_a_port_that_refuses_connections(run: Run, unused_address: str) -> None:
    for words in (("--scheduler", unused_address), ("--api", f"http://{unused_address}")):
        result = run("doctor", "-o", "json", *words)

        assert result.code == 1
        assert "connection refused" in worst_finding(result, "endpoint")


def test_plain_text_to_a_port_with_tls(secure: str, run: Run) -> None:
    result = run("doctor", "-o", "json", "--scheduler", secure)

    assert result.code == 1
    assert "the server requires TLS" in worst_finding(result, "endpoint")


def test_tls_to_a_port_with_plain_text(cluster: Cluster, run: Run, root: Root) -> None:
    own = root.write(Role.ADMIN, "me")

    result = run(
        "doctor", "-o", "json", "--scheduler", cluster.address, *flags(own), PERSYS_INSECURE=""
    )

    assert result.code == 1
    assert "does not use TLS" in worst_finding(result, "endpoint")


def test_no_certificate_at_all(secure: str, run: Run) -> None:
    result = run("doctor", "-o", "json", "--scheduler", secure, PERSYS_INSECURE="")

    assert result.code == 1
    assert "no client certificate" in worst_finding(result, "certificate")


def test_a_missing_certificate_file(secure: str, run: Run, root: Root) -> None:
    own = root.write(Role.ADMIN, "me")
    own.certificate.unlink()

    result = run("doctor", "-o", "json", "--scheduler", secure, *flags(own), PERSYS_INSECURE="")

    assert str(own.certificate) in worst_finding(result, "certificate")


@pytest.mark.parametrize(
    ("age", "lifetime", "expected"),
    [
        (2 * LIFETIME, LIFETIME, "fail: .*expired"),
        (timedelta(hours=23), LIFETIME, "warn: .*expires soon"),
        (-timedelta(hours=1), LIFETIME, "fail: .*not valid before"),
    ],
    ids=["expired", "ends soon", "not yet"],
)
def test_an_expired_expiring_or_future_certificate(
    age: timedelta, lifetime: timedelta, expected: str, secure: str, run: Run, root: Root
) -> None:
    own = root.write(Role.ADMIN, "me", age=age, lifetime=lifetime)

    result = run("doctor", "-o", "json", "--scheduler", secure, *flags(own), PERSYS_INSECURE="")

    level, _, text = expected.partition(": .*")
    assert worst_finding(result, "certificate").startswith(level)
    assert text in worst_finding(result, "certificate")


def test_a_certificate_of_another_ca(secure: str, run: Run, root: Root, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    own = Root(tmp_path / "other").write(Role.ADMIN, "me", roots=root.pem)

    result = run("doctor", "-o", "json", "--scheduler", secure, *flags(own), PERSYS_INSECURE="")

    assert result.code == 1
    assert "the server rejected" in worst_finding(result, "endpoint")


def test_a_certificate_of_the_wrong_role(secure: str, run: Run, root: Root) -> None:
    own = root.write(Role.AGENT, "n1")

    result = run("doctor", "-o", "json", "--scheduler", secure, *flags(own), PERSYS_INSECURE="")

    assert "agent/n1" in worst_finding(result, "certificate")


def test_a_key_that_other_users_can_read(secure: str, run: Run, root: Root) -> None:
    own = root.write(Role.ADMIN, "me")
    own.key.chmod(0o644)

    result = run("doctor", "-o", "json", "--scheduler", secure, *flags(own), PERSYS_INSECURE="")

    assert f"{own.key} is accessible to other users" in worst_finding(result, "certificate")


def test_a_clock_that_is_off(cluster: Cluster, ctl: Run) -> None:
    cluster.generated_at = lambda: datetime.now(UTC) + timedelta(minutes=5)
    cluster.nodes["n1"].clock_skew_ms = 9_000

    result = ctl("doctor", "-o", "json")

    assert result.code == 1
    (first, second) = found(result, "clock")
    assert "s ahead of this machine's" in first["what"]
    assert "n1" in second["what"]


def test_the_duration_of_the_request_is_not_skew() -> None:
    now = datetime.now(UTC)
    later = now + timedelta(seconds=9)

    assert check_clock(now + timedelta(seconds=4), now, later).level == "ok"
    assert check_clock(now - timedelta(seconds=3), now, later).level == "warn"
    assert check_clock(later + timedelta(minutes=1), now, later).level == "fail"


def test_a_mode_that_is_not_normal(cluster: Cluster, ctl: Run) -> None:
    cluster.mode.mode = "recovery"
    cluster.mode.reason = "the store is empty"
    cluster.mode.next_steps.append("persysctl recovery rebuild-from-agents")

    result = ctl("doctor", "-o", "json")

    (finding,) = found(result, "mode")
    assert (result.code, finding["what"]) == (1, "recovery: the store is empty")
    assert "rebuild-from-agents" in finding["cure"]


def test_no_nodes_and_nodes_that_are_not_ready(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n2", agent_version=__version__)
    cluster.nodes["n1"].status = "NotReady"
    cluster.nodes["n1"].status_reason = "no heartbeat for 40s"
    result = ctl("doctor", "-o", "json")
    (finding,) = found(result, "nodes")
    assert (result.code, finding["level"]) == (1, "fail")
    assert "no heartbeat for 40s" in finding["what"]
    assert "systemctl restart persys-agent" in finding["cure"]

    cluster.nodes.clear()
    result = ctl("doctor", "-o", "json")
    assert result.code == 1
    assert "the cluster has no nodes" in worst_finding(result, "nodes")


def test_nodes_that_an_operator_took_out_of_service(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n2", agent_version=__version__, cordoned=True)
    result = ctl("doctor", "-o", "json")
    (finding,) = found(result, "nodes")
    assert (result.code, finding["level"]) == (0, "warn")
    assert "persysctl node uncordon n2" in finding["cure"]

    cluster.nodes["n1"].status = "Draining"
    result = ctl("doctor", "-o", "json")
    drained, unusable = found(result, "nodes")
    assert (result.code, drained["level"], unusable["level"]) == (1, "warn", "fail")
    assert "persysctl node uncordon n1" in drained["cure"]
    assert "no node is ready and schedulable" in unusable["what"]


def test_paused_rollouts_and_failed_runs(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {
        f"web-{number}": a_set(f"web-{number}", phase="Paused", revision=2, reason="unhealthy")
        for number in range(7)
    }
    cluster.jobs = {"backup": a_job("backup", a_run("backup-1", "Failed", reason="exit code 3"))}
    member = cluster.add_workload("backup-1-0", "Failed")
    member.membership.job_id = "backup"

    result = ctl("doctor")

    assert result.code == 0, "only warnings"
    assert "the rollout of web-0 is paused: unhealthy" in result.out
    assert "`persysctl rollout undo web-0`" in result.out
    assert "2 more rollouts are paused" in result.out
    assert "the last run of backup failed: exit code 3" in result.out
    assert "`persysctl job logs backup backup-1`" in result.out
    assert "backup-1-0 is Failed" not in result.out


def test_an_invalid_token_is_replaced_by_a_new_one(cluster: Cluster, ctl: Run) -> None:
    cluster.abort = (grpc.StatusCode.UNAUTHENTICATED, "this token is unknown or has been revoked")

    result = ctl("doctor", "-o", "json", PERSYS_TOKEN="psk_a_b")

    (finding,) = found(result, "cluster")
    assert (result.code, finding["level"]) == (1, "fail")
    assert "has been revoked" in finding["what"]
    assert "persysctl token create" in finding["cure"]


def test_a_missing_certificate_is_one_problem(secure: str, run: Run) -> None:
    result = run("doctor", "--scheduler", secure, PERSYS_INSECURE="")

    assert "fail  certificate: no client certificate\n" in result.out
    assert "1 problem, " in result.out


def test_one_of_several_schedulers_is_enough(
    cluster: Cluster, run: Run, unused_address: str
) -> None:
    result = run("doctor", "-o", "json", "--scheduler", f"{unused_address},{cluster.address}")

    assert result.code == 0
    assert worst_finding(result, "endpoint").startswith("warn: connection refused")


def test_an_agent_is_not_queried_without_a_certificate(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    with gateway(scheduler_addr=(cluster.address,)) as url:
        result = run("doctor", "--api", url, "--agent", cluster.address, PERSYS_INSECURE="")

    assert "a client certificate is needed for more" in result.out


def test_versions_that_differ(cluster: Cluster, ctl: Run) -> None:
    cluster.nodes["n1"].agent_version = "0.0.1"
    cluster.mode.version = "9.9"

    text = worst_finding(ctl("doctor", "-o", "json"), "versions")

    assert "agent n1 0.0.1" in text
    assert "scheduler 9.9" in text


def test_a_pending_workload(cluster: Cluster, ctl: Run) -> None:
    view = cluster.add_workload("web", "Pending")
    view.reason.CopyFrom(
        control_pb2.ReasonDetail(code="INSUFFICIENT_RESOURCES", message="no node has 64 GB")
    )

    (finding,) = found(ctl("doctor", "-o", "json"), "workloads")

    assert "no node has 64 GB" in finding["what"]
    assert "persysctl explain web" in finding["cure"]


@pytest.mark.parametrize(
    ("status", "code", "failure", "cure"),
    [
        ("Failed", "CrashLoop", "RUNTIME_ERROR", "persysctl logs web"),
        ("Failed", "", "IMAGE_PULL_FAILED", "check the image name"),
        ("Failed", "", "STORAGE_ERROR", "persysctl volume list --workload web"),
        ("Running", "Unhealthy", "", "persysctl logs web"),
    ],
)
def test_a_failed_workload_is_a_problem_with_the_fix_of_its_kind(
    status: str, code: str, failure: str, cure: str, cluster: Cluster, ctl: Run
) -> None:
    view = cluster.add_workload("web", status, failure_reason=failure)
    view.reason.code = code

    result = ctl("doctor", "-o", "json")

    (finding,) = found(result, "workloads")
    assert (result.code, finding["level"]) == (1, "fail")
    assert cure in finding["cure"]


def test_the_summary_counts_failed_workloads(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web", "Failed")

    assert "\n1 problem, " in ctl("doctor").out


@pytest.mark.parametrize(
    ("version", "program"), [("v2", "docker compose"), ("v1", "docker-compose")]
)
def test_either_compose_command_is_enough(
    version: str,
    program: str,
    cluster: Cluster,
    ctl: Run,
    tmp_path: Path,
) -> None:
    for name, responses in (("docker", version == "v2"), ("docker-compose", version == "v1")):
        script = (
            f'#!/bin/sh\n[ "$1" = version ] && exit {int(name != "docker" and not responses)}\n'
        )
        (tmp_path / name).write_text(f"{script}exit {int(not responses)}\n")
        (tmp_path / name).chmod(0o755)

    result = ctl("doctor", "-o", "json", "--agent", cluster.address, PATH=str(tmp_path))

    (finding,) = [each for each in json.loads(result.out) if each["check"] == "compose"]
    assert (finding["level"], finding["what"]) == ("ok", f"`{program}` works")


def test_internal_errors_and_unreadable_records_are_reported(cluster: Cluster, ctl: Run) -> None:
    error = control_pb2.InternalError(
        where="step", key="web", text="Traceback\n  a line\nValueError: odd", count=3
    )
    cluster.diagnostics.internal_errors.append(error)
    cluster.diagnostics.nodes.add(node_id="n1", internal_errors=[error])
    cluster.diagnostics.quarantined.add(key="/workloads/db", reason="checksum differs")
    cluster.diagnostics.policy_violations.add(workload_id="old", node_id="n1", reason="binds /etc")

    result = ctl("doctor", "-o", "json")

    assert result.code == 1
    assert [each["what"] for each in found(result, "errors")] == [
        "the scheduler failed 3 times in step for web: ValueError: odd",
        "the agent of n1 failed 3 times in step for web: ValueError: odd",
    ]
    assert (
        worst_finding(result, "store")
        == "fail: record /workloads/db cannot be read: checksum differs"
    )
    assert worst_finding(result, "policy").startswith(
        "warn: old would be refused by the policy of n1"
    )


def test_an_srv_record_that_does_not_exist(run: Run, unused_address: str) -> None:
    result = run(
        "doctor", "-o", "json", "--scheduler", "_persys._tcp.example", PERSYS_DNS_SERVER=unused_address
    )  # fmt: skip

    assert result.code == 1
    assert "cannot resolve the SRV records" in worst_finding(result, "dns")


def test_docker_is_missing_or_does_not_answer(cluster: Cluster, run: Run, tmp_path: Path) -> None:
    words = ("doctor", "-o", "json", "--scheduler", cluster.address, "--agent", cluster.address)

    silent = run(*words, DOCKER_HOST="tcp://127.0.0.1:1")
    missing = run(*words, PATH=str(tmp_path))

    assert "does not respond" in worst_finding(silent, "docker")
    assert found(missing, "docker") or found(missing, "libvirt")


def test_an_unhealthy_agent(cluster: Cluster, run: Run) -> None:
    cluster.health.healthy = False
    cluster.health.runtime_status["container"] = "unhealthy: no socket"

    result = run("doctor", "-o", "json", "--scheduler", cluster.address, "--agent", cluster.address)

    assert "unhealthy: no socket" in worst_finding(result, "agent")


def test_the_port_of_the_agent_belongs_to_another_process(
    cluster: Cluster, run: Run, unused_address: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        words = ("doctor", "-o", "json", "--timeout", "500ms", "--scheduler", cluster.address)
        taken = run(*words, "--agent", address)
        silent = run(*words, "--agent", unused_address)

    assert "does not respond as an agent" in worst_finding(taken, "agent")
    assert "connection refused" in worst_finding(silent, "agent")


def test_a_disk_that_is_nearly_full() -> None:
    assert check_disk("/x", 50, 100).level == "ok"
    assert check_disk("/x", 9, 100).level == "warn"
    assert check_disk("/x", 2, 100).level == "fail"


def test_the_state_directory_is_checked(ctl: Run, tmp_path: Path) -> None:
    result = ctl("doctor", "-o", "json", "--state-dir", str(tmp_path))

    assert str(tmp_path) in str(json.loads(result.out))


def test_a_node_that_cannot_be_dispatched_to_is_named_with_the_reason(
    cluster: Cluster, ctl: Run
) -> None:
    cluster.add_node(
        "n2", agent_version=__version__, problems=["accepts no orders: journal: disk I/O error"]
    )

    result = ctl("doctor")

    assert "warn  nodes: n2 accepts no orders: journal: disk I/O error" in result.out
    assert "persysctl node get n2" in result.out


def test_the_libvirt_binding_of_the_agent_is_shown(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'libvirt-python of pip for libvirt 9.0.0'\n")
    python.chmod(0o755)

    shown = check_binding(str(python))

    assert shown.level is Level.OK
    assert shown.what == "the agent uses libvirt-python of pip for libvirt 9.0.0"


def test_a_missing_libvirt_binding_has_a_fix(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'python3-libvirt is for Python 3.11' >&2\nexit 1\n")
    python.chmod(0o755)

    shown = check_binding(str(python))

    assert shown.level is Level.WARN
    assert shown.what == "python3-libvirt is for Python 3.11"
    assert shown.cure
