"""Where persysctl finds its peers: a flag beats a variable beats the file beats the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


@pytest.fixture
def config(home: Path) -> Path:
    (home / ".persys").mkdir(parents=True)
    return home / ".persys" / "config.yaml"


def test_the_file_names_the_scheduler(cluster: Cluster, run: Run, config: Path) -> None:
    config.write_text(f"grpc_endpoint: {cluster.address}\n")

    assert run("node", "list").code == 0


def test_a_variable_beats_the_file(cluster: Cluster, run: Run, config: Path) -> None:
    config.write_text("grpc_endpoint: 127.0.0.1:1\n")

    assert run("node", "list", PERSYS_GRPC_ENDPOINT=cluster.address).code == 0


def test_a_flag_beats_the_variable(cluster: Cluster, run: Run) -> None:
    words = ("node", "list", "--scheduler", cluster.address)

    assert run(*words, PERSYS_GRPC_ENDPOINT="127.0.0.1:1").code == 0


def test_without_a_word_the_contracts_port_is_tried(run: Run) -> None:
    from argparse import Namespace

    from persys.cli.settings import load

    settings = load(Namespace(scheduler=None, timeout=None, wait=None), {})

    assert (settings.scheduler, settings.agent) == ("127.0.0.1:8085", "127.0.0.1:50051")


def test_a_file_may_name_an_agent_instead(cluster: Cluster, run: Run, config: Path) -> None:
    config.write_text(f"grpc_endpoint: {cluster.address}\ngrpc_target: agent\n")

    assert run("agent", "health").code == 0


def test_keys_of_other_command_lines_are_left_alone(
    cluster: Cluster, run: Run, config: Path
) -> None:
    config.write_text(
        "api_endpoint: https://gateway:8551\ntransport: http\nca_cert_path: x\ncert_path: y\n"
        f"key_path: z\ngrpc_insecure: true\nrpc_timeout_seconds: 5\ngrpc_endpoint: {cluster.address}\n"
    )

    assert run("node", "list").code == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("grpc_insecure: perhaps", "grpc_insecure"),
        ("grpc_insecure: false", "no certificate to show"),
        ("tls_verify: never\nca_cert_path: a\ncert_path: b\nkey_path: c", "identity or host"),
        ("cert_path: b", "--ca"),
        ("grpc_target: gateway", "grpc_target"),
        ("grpc_endpoint: nowhere", "nowhere"),
        ("rpc_timeout_seconds: soon", "rpc_timeout_seconds"),
        ("- a list", "mapping"),
        ("a: [", "config.yaml"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    content: str, named: str, run: Run, config: Path
) -> None:
    config.write_text(content)

    ended = run("node", "list", PERSYS_INSECURE="")

    assert ended.code == 2
    assert named in ended.err


@pytest.mark.parametrize("transport", ["http", "HTTP", "pigeon"])
def test_a_transport_that_is_not_there_is_refused(transport: str, ctl: Run, run: Run) -> None:
    ended = run("node", "list", PERSYS_TRANSPORT=transport)

    assert ended.code == 2
    assert "PERSYS_TRANSPORT" in ended.err


def test_the_transport_may_be_said(cluster: Cluster, run: Run) -> None:
    ended = run("node", "list", PERSYS_TRANSPORT="grpc", PERSYS_GRPC_ENDPOINT=cluster.address)

    assert ended.code == 0


def test_of_several_schedulers_the_first_that_can_be_reached_is_asked(
    cluster: Cluster, run: Run
) -> None:
    assert run("node", "list", "--scheduler", f"127.0.0.1:1, {cluster.address}").code == 0


def test_when_none_of_several_can_be_reached_the_first_is_named(run: Run) -> None:
    done = run("node", "list", "--scheduler", "127.0.0.1:1,127.0.0.1:2")

    assert done.code != 0
    assert "127.0.0.1:1" in done.err
