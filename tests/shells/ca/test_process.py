"""persys-ca, persysctl and persys-agent join as processes."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from persys.agent.settings import AgentSettings
from persys.infra.clock import SystemClock
from persys.infra.settings import load
from persys.infra.tls.certificates import CertificateFiles, read_key_pair
from persys.model.identity import Identity, Role

BIN = Path(sys.executable).parent


@dataclass
class Shell:
    """A user's shell on the host of the CA."""

    folder: Path
    node: Path
    port: int

    def run(
        self, program: str, *words: str | Path, given: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [BIN / program, *words],
            input=given,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def environ(self) -> dict[str, str]:
        admin = self.folder / "admin"
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("PERSYS_")},
            "HOME": str(self.folder),
            "PERSYS_CA_DIR": str(self.folder / "ca"),
            "PERSYS_CA_PORT": str(self.port),
            "PERSYS_CA_LISTEN": "127.0.0.1",
            "PERSYS_TLS_CA": str(admin / "ca.crt"),
            "PERSYS_TLS_CERT": str(admin / "admin.crt"),
            "PERSYS_TLS_KEY": str(admin / "admin.key"),
        }

    def ctl(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        return self.run("persysctl", *words, "--authority", f"127.0.0.1:{self.port}")

    def join(self, token: str, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        node = self.node
        return self.run(
            *("persys-agent", "join", "10.0.0.1:8085", token, "--config", node / "agent.yaml"),
            *(
                "--tls-cert",
                node / "a.crt",
                "--tls-key",
                node / "a.key",
                "--tls-ca",
                node / "ca.crt",
            ),
            *words,
            given=given,
        )

    def token(self, *words: str) -> str:
        result = self.ctl("token", "create", "--role", "agent", "--node", "n1", *words)
        assert result.returncode == 0, result.stderr
        assert "persys-agent join" in result.stderr
        return result.stdout.strip()


@pytest.fixture(scope="module")
def ca_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A host with the CA and the certificate of its first admin."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
    folder = tmp_path_factory.mktemp("ca-host")
    shell = Shell(folder, folder / "node", port)
    result = shell.run(
        *("persys-ca", "certificate", "--role", "admin", "--name", "ada"),
        *("--out", folder / "admin"),
    )
    assert result.returncode == 0, result.stderr
    serving = subprocess.Popen([BIN / "persys-ca"], env=shell.environ, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while shell.ctl("token", "list", "--kind", "join").returncode:
            assert time.monotonic() < deadline, "the authority does not answer"
        yield shell
        serving.terminate()
        assert serving.wait(20) == 0
    finally:
        serving.kill()
        serving.wait(20)


@pytest.fixture
def shell(ca_host: Shell, tmp_path: Path) -> Shell:
    """A shell with its own node."""
    return replace(ca_host, node=tmp_path / "node")


def test_a_node_joins_with_a_token_and_again_with_the_next(shell: Shell) -> None:
    token = shell.token()
    done = shell.join(token)
    assert done.returncode == 0, done.stderr
    assert "node n1 has joined" in done.stdout

    node = shell.node
    files = CertificateFiles(node / "a.crt", node / "a.key", node / "ca.crt")
    pair = read_key_pair(files, SystemClock().now())
    assert pair.claims.identity == Identity(Role.AGENT, "n1")
    assert files.key.stat().st_mode & 0o777 == 0o600
    found = load(AgentSettings, ["--config", str(node / "agent.yaml")], {}, program="a").settings
    assert found.scheduler_addr == ("10.0.0.1:8085",)
    assert found.ca_addr == (f"127.0.0.1:{shell.port}",)
    assert (found.tls_cert, found.tls_key, found.tls_ca) == (
        files.certificate,
        files.key,
        files.roots,
    )

    again = shell.join(token)
    assert again.returncode == 0, again.stderr
    assert "has already joined" in again.stdout
    assert read_key_pair(files, SystemClock().now()) == pair

    other = shell.join("-", given=shell.token() + "\n")
    assert other.returncode == 0, other.stderr
    assert read_key_pair(files, SystemClock().now()) != pair


def test_used_expired_and_wrong_tokens_are_reported(shell: Shell) -> None:
    token = shell.token()
    assert (
        shell.run("persysctl", "certificate", "join", token, "--out", shell.node.parent).returncode
        == 0
    )

    used = shell.join(token)
    assert (used.returncode, "has already been used" in used.stderr) == (1, True)
    damaged = shell.join(token[:-9])
    assert (damaged.returncode, "is damaged" in damaged.stderr) == (2, True)
    for_another = shell.join(token, "--node-id", "n2")
    assert (for_another.returncode, "is for node n1" in for_another.stderr) == (2, True)
    short_lived = shell.token("--ttl", "1s")
    time.sleep(1.1)  # let it expire
    expired = shell.join(short_lived)
    assert (expired.returncode, "has expired" in expired.stderr) == (1, True)
    assert not (shell.node / "a.key").exists()


def test_an_admin_creates_lists_and_revokes_certificates(shell: Shell) -> None:
    out = shell.node.parent / "bob"
    result = shell.ctl("certificate", "create", "--role", "viewer", "--name", "bob", "--out", out)
    assert result.returncode == 0, result.stderr

    listed = json.loads(shell.ctl("certificate", "list", "-o", "json").stdout)
    (serial,) = [view["serial"] for view in listed if view["name"] == "bob"]
    as_bob = [
        word
        for name, file in (("ca", "ca.crt"), ("cert", "viewer.crt"), ("key", "viewer.key"))
        for word in (f"--{name}", str(out / file))
    ]
    refused = shell.ctl("certificate", "list", *as_bob)
    assert (refused.returncode, "viewer/bob has no permission" in refused.stderr) == (1, True)

    assert serial in shell.ctl("certificate", "revoke", "viewer/bob", "--reason", "left").stdout
    assert "Revoked" in shell.ctl("certificate", "list").stdout
    refused = shell.ctl("certificate", "list", *as_bob)
    assert "has been revoked" in refused.stderr
    assert "viewer/bob" in shell.ctl("certificate", "audit").stdout


def test_without_a_certificate_persysctl_shows_how_to_get_one(shell: Shell) -> None:
    environ = {key: value for key, value in shell.environ.items() if "TLS" not in key}
    result = subprocess.run(
        [BIN / "persysctl", "token", "list", "--kind", "join"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert result.returncode == 2
    assert "persys-ca certificate --role admin" in result.stderr


def test_settings_are_printed_and_invalid_ones_named(shell: Shell) -> None:
    assert "port = " in shell.run("persys-ca", "--print-config").stdout
    wrong = shell.run("persys-ca", "--port", "70000", "--dir", shell.node)
    assert (wrong.returncode, "70000" in wrong.stderr) == (1, True)
    taken = shell.run("persys-ca", "--dir", shell.node)
    assert (taken.returncode, "cannot be used" in taken.stderr) == (1, True)


def test_join_keeps_existing_settings_in_the_file(shell: Shell) -> None:
    config = shell.node / "agent.yaml"
    config.parent.mkdir()
    config.write_text("node_region: eu\nscheduler_addr: old:1\n")

    assert shell.join(shell.token()).returncode == 0

    parsed = yaml.safe_load(config.read_text())
    assert (parsed["node_region"], parsed["scheduler_addr"]) == ("eu", ["10.0.0.1:8085"])
