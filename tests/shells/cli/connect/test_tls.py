"""persysctl over TLS: client certificates, verification of the server, and the errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.model.identity import Role
from persys.wire.gen.agent.v1 import agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2_grpc
from root_ca import LIFETIME, Root
from shells.cli.conftest import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from persys.infra.atomic_files import CertificateFiles
    from shells.cli.conftest import Run


@pytest.fixture
def mine(root: Root) -> CertificateFiles:
    return root.write(Role.ADMIN, "me")


def serving(root: Root, role: Role, name: str, **kwargs: tuple[str, ...]) -> Iterator[Cluster]:
    tls = root.write(role, name, **kwargs)  # type: ignore[arg-type]  # only hosts are given
    server = grpc.server(ThreadPoolExecutor(4))
    cluster = Cluster()
    control_pb2_grpc.add_AgentControlServicer_to_server(cluster, server)
    agent_pb2_grpc.add_AgentServiceServicer_to_server(cluster, server)
    credentials = grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.certificate.read_bytes())], root.pem, True
    )
    cluster.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    yield cluster
    server.stop(None).wait()


@pytest.fixture
def secure(root: Root) -> Iterator[Cluster]:
    yield from serving(root, Role.SCHEDULER, "s1")


@pytest.fixture
def node(root: Root) -> Iterator[Cluster]:
    yield from serving(root, Role.AGENT, "n1")


@pytest.fixture
def by_host(root: Root) -> Iterator[Cluster]:
    yield from serving(root, Role.GATEWAY, "odd", hosts=("127.0.0.1",))


def flags(files: CertificateFiles) -> tuple[str, ...]:
    return ("--ca", str(files.roots), "--cert", str(files.certificate), "--key", str(files.key))


def test_a_certificate_is_set_by_flags(secure: Cluster, run: Run, mine: CertificateFiles) -> None:
    result = run("node", "list", "--scheduler", secure.address, *flags(mine))

    assert result.code == 0, result.err


def test_a_certificate_is_set_by_variables_or_the_file(
    secure: Cluster, run: Run, root: Root, mine: CertificateFiles, home: Path
) -> None:
    words = ("node", "list", "--scheduler", secure.address)
    (home / ".persys").mkdir(parents=True)
    (home / ".persys" / "config.yaml").write_text(
        f"ca_cert_path: {mine.roots}\ncert_path: {mine.certificate}\nkey_path: {mine.key}\n"
    )

    assert run(*words, PERSYS_INSECURE="").code == 0
    (home / ".persys" / "config.yaml").write_text("grpc_insecure: true\n")
    assert run(*words, PERSYS_INSECURE="", **root.variables(mine)).code == 0


def test_an_agent_is_queried_over_tls(node: Cluster, run: Run, mine: CertificateFiles) -> None:
    assert run("agent", "health", "--agent", node.address, *flags(mine)).code == 0


def test_without_a_certificate_the_error_names_the_ways_to_get_one(run: Run) -> None:
    result = run("node", "list", PERSYS_INSECURE="")

    assert result.code == 2
    assert "persys up" in result.err
    assert "--insecure" in result.err


def test_the_certificate_of_an_agent_is_not_accepted_for_a_scheduler(
    node: Cluster, run: Run, mine: CertificateFiles
) -> None:
    result = run("node", "list", "--scheduler", node.address, *flags(mine))

    assert result.code == 4
    assert "has no scheduler certificate" in result.err


def test_host_names_are_verified_on_request(
    by_host: Cluster, run: Run, mine: CertificateFiles
) -> None:
    words = ("node", "list", "--scheduler", by_host.address, *flags(mine))

    ended = run(*words)
    assert ended.code == 4
    assert "PERSYS_TLS_VERIFY=host" in ended.err
    assert run(*words, PERSYS_TLS_VERIFY="host").code == 0


def test_a_client_certificate_of_another_ca_is_reported(
    secure: Cluster, run: Run, root: Root, tmp_path: Path
) -> None:
    other = Root(tmp_path / "elsewhere").write(Role.ADMIN, "me", roots=root.pem)

    result = run("node", "list", "--scheduler", secure.address, *flags(other))

    assert result.code == 4
    assert "the server rejected" in result.err
    assert "persysctl certificate create" in result.err


def test_a_scheduler_of_another_ca_is_reported(secure: Cluster, run: Run, tmp_path: Path) -> None:
    other = Root(tmp_path / "elsewhere").write(Role.ADMIN, "me")

    result = run("node", "list", "--scheduler", secure.address, *flags(other))

    assert result.code == 4
    assert "has no scheduler certificate that is signed by" in result.err


def test_an_expired_certificate_is_reported(secure: Cluster, run: Run, root: Root) -> None:
    late = root.write(Role.ADMIN, "late", age=2 * LIFETIME)

    result = run("node", "list", "--scheduler", secure.address, *flags(late))

    assert result.code == 2
    assert "expired at" in result.err


def test_a_certificate_that_is_not_valid_yet_points_to_the_clock(
    secure: Cluster, run: Run, root: Root
) -> None:
    early = root.write(Role.ADMIN, "early", age=-LIFETIME)

    result = run("node", "list", "--scheduler", secure.address, *flags(early))

    assert result.code == 2
    assert "clock" in result.err


def test_a_missing_file_is_named(secure: Cluster, run: Run, mine: CertificateFiles) -> None:
    mine.key.unlink()

    result = run("node", "list", "--scheduler", secure.address, *flags(mine))

    assert result.code == 2
    assert str(mine.key) in result.err


def test_plain_text_to_a_port_with_tls_is_reported(secure: Cluster, run: Run) -> None:
    result = run("node", "list", "--scheduler", secure.address, "--insecure")

    assert result.code == 4
    assert "requires TLS" in result.err


def test_tls_to_a_port_without_tls_is_reported(
    cluster: Cluster, run: Run, mine: CertificateFiles
) -> None:
    result = run("node", "list", "--scheduler", cluster.address, *flags(mine))

    assert result.code == 4
    assert "-insecure" in result.err


def test_insecure_and_a_certificate_exclude_each_other(run: Run, mine: CertificateFiles) -> None:
    assert run("node", "list", "--insecure", *flags(mine)).code == 2


def test_a_token_is_sent_with_the_certificate_and_never_in_plain_text(
    secure: Cluster, cluster: Cluster, run: Run, mine: CertificateFiles
) -> None:
    shown: list[object] = []
    secure.heard = cluster.heard = lambda beside: shown.append(beside.get("authorization"))

    run("node", "list", "--scheduler", secure.address, *flags(mine), PERSYS_TOKEN="psk_a_b")
    run("node", "list", "--scheduler", cluster.address, "--insecure", PERSYS_TOKEN="psk_a_b")

    assert shown == ["Bearer psk_a_b", None]
