"""persysctl context: named clusters in one file, which older CLIs can still read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


@pytest.fixture
def config(home: Path) -> Path:
    (home / ".persys").mkdir(parents=True)
    return home / ".persys" / "config.yaml"


def test_the_first_context_is_used_at_once(cluster: Cluster, run: Run, config: Path) -> None:
    assert run("context", "add", "lab", "--scheduler", cluster.address).code == 0

    assert run("node", "list").code == 0
    assert yaml.safe_load(config.read_text()) == {
        "contexts": {"lab": {"grpc_endpoint": cluster.address, "transport": "grpc"}},
        "current_context": "lab",
    }
    assert config.stat().st_mode & 0o777 == 0o600


def test_a_flat_file_is_the_context_default_and_stays_readable(
    cluster: Cluster, run: Run, config: Path
) -> None:
    config.write_text(f"# mine\ngrpc_endpoint: {cluster.address}\nof_others: 7\n")

    run("context", "add", "far", "--api", "https://far:8551", "--cluster", "east", "--ca", "ca.crt")

    content = yaml.safe_load(config.read_text())
    assert config.read_text().startswith("# mine\n")
    assert content["grpc_endpoint"] == cluster.address
    assert content["of_others"] == 7
    assert content["contexts"]["far"] == {
        "api_endpoint": "https://far:8551",
        "cluster": "east",
        "ca_cert_path": str(Path("ca.crt").absolute()),
        "transport": "http",
    }
    assert run("context", "list", "-o", "name").out.split() == ["default", "far"]
    assert run("node", "list").code == 0, "default is still the current context"


def test_another_context_is_used_permanently_or_once(
    cluster: Cluster, run: Run, config: Path, unused_address: str
) -> None:
    config.write_text(f"grpc_endpoint: {unused_address}\n")
    run("context", "add", "lab", "--scheduler", cluster.address)

    assert run("node", "list").code == 4
    assert run("node", "list", "--context", "lab").code == 0
    assert run("node", "list", PERSYS_CONTEXT="lab").code == 0
    assert run("context", "use", "lab").code == 0
    assert run("node", "list").code == 0
    assert "lab" in run("context", "show").out


def test_other_keys_of_a_changed_context_are_kept(run: Run, config: Path) -> None:
    config.write_text("contexts: {lab: {grpc_endpoint: 'a:1', odd: yes}}\n")

    run("context", "add", "lab", "--scheduler", "b:2", "--use")

    assert yaml.safe_load(config.read_text())["contexts"]["lab"] == {
        "grpc_endpoint": "b:2",
        "odd": True,
        "transport": "grpc",
    }


def test_the_current_context_cannot_be_removed(run: Run, config: Path) -> None:
    config.write_text("current_context: a\ncontexts: {a: {cluster: x}, b: {cluster: y}}\n")

    refused = run("context", "remove", "a")
    removed = run("context", "remove", "b")

    assert (refused.code, removed.code) == (2, 0)
    assert "is the current one" in refused.err
    assert run("context", "list", "-o", "name").out.split() == ["a"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("use", "nowhere"), "not found: nowhere; expected one of a"),
        (("show", "nowhere"), "not found: nowhere"),
        (("remove", "nowhere"), "not found: nowhere"),
        (("add", "b"), "--api URL"),
        (("add", "b", "--api", "https://g:1", "--scheduler", "s:1"), "cannot be combined"),
        (("add", "a b", "--api", "https://g:1"), "invalid name"),
    ],
)
def test_an_invalid_context_is_refused(
    words: tuple[str, ...], named: str, run: Run, config: Path
) -> None:
    config.write_text("current_context: a\ncontexts: {a: {cluster: x}}\n")

    result = run("context", *words)

    assert result.code in (1, 2)
    assert named in result.err


def test_secrets_are_hidden(run: Run, config: Path) -> None:
    config.write_text("token: psk_1_2\napi_token: x\n")

    shown = run("context", "show").out + run("context", "list", "-o", "json").out

    assert "psk_1_2" not in shown
    assert "(hidden)" in shown


def test_a_file_that_other_users_can_read_is_a_warning(
    cluster: Cluster, run: Run, config: Path
) -> None:
    config.write_text(f"grpc_endpoint: {cluster.address}\n")
    config.chmod(0o644)
    assert "is accessible to other users" in run("node", "list").err

    config.chmod(0o600)
    assert run("node", "list").err == ""


def test_contexts_are_completed(run: Run, config: Path) -> None:
    config.write_text("contexts: {lab: {grpc_endpoint: 'a:1'}, far: {api_endpoint: 'https://g'}}\n")

    assert run("__complete", "--", "context", "use", "").out == "far\thttps://g\nlab\ta:1\n"
    assert run("__complete", "--", "node", "list", "--context", "l").out == "lab\ta:1\n"
