"""Settings of persysctl: flag before variable before file before default."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.cli.connect.settings import load_settings

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


def test_the_default_is_the_port_of_the_contract(run: Run) -> None:
    settings = load_settings(Namespace(scheduler=None, timeout=None, wait=None), {})

    assert (settings.scheduler, settings.agent) == ("127.0.0.1:8085", "127.0.0.1:50051")


def test_a_file_may_name_an_agent_instead(cluster: Cluster, run: Run, config: Path) -> None:
    config.write_text(f"grpc_endpoint: {cluster.address}\ngrpc_target: agent\n")

    assert run("agent", "health", PERSYS_AGENT_ADDR="").code == 0


def test_a_context_names_its_agent_beside_its_scheduler(
    cluster: Cluster, run: Run, config: Path
) -> None:
    config.write_text(f"grpc_endpoint: 127.0.0.1:1\nagent_endpoint: {cluster.address}\n")

    assert run("agent", "health", PERSYS_AGENT_ADDR="").code == 0


def test_keys_of_other_clis_are_ignored(cluster: Cluster, run: Run, config: Path) -> None:
    config.write_text(
        "api_endpoint: https://gateway:8551\ntransport: grpc\nca_cert_path: x\ncert_path: y\n"
        f"key_path: z\ngrpc_insecure: true\nrpc_timeout_seconds: 5\ngrpc_endpoint: {cluster.address}\n"
    )

    assert run("node", "list").code == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("grpc_insecure: perhaps", "grpc_insecure"),
        ("grpc_insecure: false", "no client certificate"),
        ("tls_verify: never\nca_cert_path: a\ncert_path: b\nkey_path: c", "identity or host"),
        ("cert_path: b", "--ca"),
        ("grpc_target: gateway", "grpc_target"),
        ("transport: pigeon", "transport"),
        ("api_endpoint: ftp://there", "ftp://there"),
        ("token_file: /nowhere/token", "/nowhere/token"),
        ("contexts: [a]", "contexts"),
        ("current_context: a", "context not found: a"),
        ("grpc_endpoint: nowhere", "nowhere"),
        ("rpc_timeout_seconds: soon", "rpc_timeout_seconds"),
        ("- a list", "mapping"),
        ("a: [", "config.yaml"),
    ],
)
def test_an_invalid_file_is_named(content: str, named: str, run: Run, config: Path) -> None:
    config.write_text(content)

    result = run("node", "list", PERSYS_INSECURE="")

    assert result.code == 2
    assert named in result.err


def test_an_unknown_transport_is_refused(run: Run) -> None:
    result = run("node", "list", PERSYS_TRANSPORT="pigeon")

    assert result.code == 2
    assert "PERSYS_TRANSPORT" in result.err


@pytest.mark.parametrize(
    ("flags", "variables", "file", "expected"),
    [
        ({}, {}, "", "grpc"),
        ({}, {}, "transport: http", "http"),
        ({}, {}, "api_endpoint: https://g:1", "http"),
        ({}, {}, "api_endpoint: https://g:1\ngrpc_endpoint: s:1", "grpc"),
        ({}, {"PERSYS_GRPC_ENDPOINT": "s:1"}, "transport: http", "grpc"),
        ({}, {"PERSYS_API_ENDPOINT": "g:1"}, "grpc_endpoint: s:1", "http"),
        ({}, {"PERSYS_TRANSPORT": "HTTP", "PERSYS_GRPC_ENDPOINT": "s:1"}, "", "http"),
        ({"scheduler": "s:1"}, {"PERSYS_TRANSPORT": "http"}, "transport: http", "grpc"),
        ({"api": "g:1"}, {"PERSYS_TRANSPORT": "grpc"}, "", "http"),
    ],
)
def test_the_first_source_that_names_a_server_selects_the_transport(
    flags: dict[str, str],
    variables: dict[str, str],
    file: str,
    expected: str,
    config: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(home))
    config.write_text(file)

    settings = load_settings(
        Namespace(**{"scheduler": None, "timeout": None, "wait": None, **flags}), variables
    )

    assert settings.transport == expected


def test_the_transport_can_be_set(cluster: Cluster, run: Run) -> None:
    result = run("node", "list", PERSYS_TRANSPORT="grpc", PERSYS_GRPC_ENDPOINT=cluster.address)

    assert result.code == 0


def test_the_first_reachable_of_several_schedulers_is_used(cluster: Cluster, run: Run) -> None:
    assert run("node", "list", "--scheduler", f"127.0.0.1:1, {cluster.address}").code == 0


def test_when_no_scheduler_is_reachable_the_first_is_named(run: Run) -> None:
    result = run("node", "list", "--scheduler", "127.0.0.1:1,127.0.0.1:2")

    assert result.code != 0
    assert "127.0.0.1:1" in result.err
