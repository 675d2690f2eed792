"""persysctl federation, against a home cluster and a remote cluster with scripted answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from persys.infra.tls.identity import read_claims
from persys.model.identity import Identity, Role
from persys.wire.gen.control.v1.control_pb2 import (
    DrainBlock,
    DrainView,
    IdentityView,
    ModeView,
)
from shells.cli.conftest import Cluster, a_cluster_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shells.cli.commands.conftest import Ctl
    from shells.cli.conftest import CliResult, Run

TOKEN = "psk_4f2a91c07be35d18_secret"


@pytest.fixture
def remote(cluster: Cluster) -> Iterator[Cluster]:
    """A remote cluster that accepts `home`, which `cluster` is."""
    cluster.mode = ModeView(mode="normal", cluster_id="home", cluster_uid="u1", version="1.0")
    with a_cluster_server() as created:
        created.mode = ModeView(mode="normal", cluster_id="east", cluster_uid="u2", version="1.0")
        created.identity = IdentityView(
            role="operator",
            name="home",
            prefix="home--",
            deeds=["read", "workloads", "logs", "exec", "secrets"],
        )
        yield created


class Adding:
    """`federation add` with a directory of this test."""

    def __init__(self, ctl: Run, remote: Cluster, directory: Path) -> None:
        self._ctl = ctl
        self._remote = remote
        self.directory = directory
        self.token = directory.parent / "given-token"
        self.token.write_text(f"{TOKEN}\n")

    def __call__(self, *words: str, name: str = "east", address: str = "") -> CliResult:
        given = ("--remote", address or self._remote.address, "--token-file", str(self.token))
        where = ("--directory", str(self.directory))
        return self._ctl("federation", "add", name, *given, *where, *words)

    def variables(self, name: str = "east") -> dict[str, str]:
        lines = (self.directory / f"{name}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.fixture
def add(ctl: Run, remote: Cluster, tmp_path: Path) -> Adding:
    return Adding(ctl, remote, tmp_path / "federation")


def test_the_settings_of_a_federation_are_written(add: Adding, remote: Cluster) -> None:
    limits = ("--tier", "2", "--price", "0.04", "--share", "50", "--cores-max", "8")
    result = add(*limits, "--spend-max", "2.5")

    assert result.code == 0, result.err
    assert f"remote cluster east at {remote.address}: the token acts on home--*\n" in result.out
    assert "exec persys-federation -insecure)" in result.out
    file = add.directory / "east.env"
    assert file.stat().st_mode & 0o777 == 0o600
    wanted = {
        "PERSYS_NODE_ID": "east",
        "PERSYS_CLUSTER_ID": "home",
        "PERSYS_FEDERATION_REMOTE": remote.address,
        "PERSYS_FEDERATION_SHARE_PERCENT": "50",
        "PERSYS_FEDERATION_CORES_MAX": "8",
        "PERSYS_FEDERATION_SPEND_PER_HOUR_MAX": "2.5",
        "PERSYS_NODE_TIER": "2",
        "PERSYS_NODE_PRICE": "0.04",
    }
    assert wanted.items() <= add.variables().items()
    token = add.directory / "east" / "token"
    assert add.variables()["PERSYS_FEDERATION_TOKEN_FILE"] == str(token)
    assert (token.read_text(), token.stat().st_mode & 0o777) == (f"{TOKEN}\n", 0o600)


def test_two_federations_of_a_machine_have_different_ports(add: Adding) -> None:
    assert add().code == 0
    assert add(name="other").code == 0

    first, second = add.variables(), add.variables("other")
    for name in ("PERSYS_GRPC_PORT", "PERSYS_METRICS_PORT", "PERSYS_STATE_PATH"):
        assert first[name] != second[name]


def test_the_start_command_is_available_as_json(add: Adding) -> None:
    shown = json.loads(add("-o", "json").out)

    assert shown.keys() == {"name", "environment_file", "start"}
    assert shown["environment_file"] == str(add.directory / "east.env")


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("", "the token has no prefix: expected 'home--'"),
        ("other--", "the token has the prefix 'other--': expected 'home--'"),
    ],
)
def test_a_token_of_another_prefix_is_refused(
    add: Adding, remote: Cluster, prefix: str, text: str
) -> None:
    remote.identity.prefix = prefix

    result = add()

    assert (result.code, text in result.err) == (1, True)
    assert "`persysctl token create --role operator --name home --prefix home--`" in result.err
    assert not add.directory.exists()


def test_a_token_without_needed_permissions_is_refused(add: Adding, remote: Cluster) -> None:
    del remote.identity.deeds[:]
    remote.identity.deeds.append("read")

    result = add()

    assert (result.code, "the token has no permission workloads" in result.err) == (1, True)


def test_missing_permissions_for_logs_are_noted(add: Adding, remote: Cluster) -> None:
    remote.identity.deeds.remove("logs")

    result = add()

    assert result.code == 0
    assert "note: the token has no permission logs" in result.err


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("mode", "recovery", "the remote cluster is in recovery mode"),
        ("cluster_id", "", "the remote cluster has version 1.0, which does not support federation"),
        ("cluster_uid", "u1", "is this cluster itself"),
    ],
)
def test_an_unusable_remote_cluster_is_refused(
    add: Adding, remote: Cluster, field: str, value: str, text: str
) -> None:
    setattr(remote.mode, field, value)

    result = add()

    assert (result.code, text in result.err) == (1, True)
    assert not add.directory.exists()


def test_each_of_several_addresses_is_checked(
    add: Adding, remote: Cluster, unused_address: str
) -> None:
    with a_cluster_server() as second:
        second.mode.CopyFrom(remote.mode)
        second.identity.CopyFrom(remote.identity)
        both = f"{remote.address}, {second.address}"
        second.mode.cluster_uid = "u3"
        other = add(address=both)
        second.mode.cluster_uid = remote.mode.cluster_uid
        result = add(address=both)

    assert (other.code, "the addresses are of different clusters" in other.err) == (1, True)
    assert result.code == 0, result.err
    assert result.out.count("remote cluster east at ") == 2
    assert add.variables()["PERSYS_FEDERATION_REMOTE"] == f"{remote.address},{second.address}"
    missing = add(address=f"{remote.address},{unused_address}", name="other")
    assert (missing.code, f"cluster at {unused_address}" in missing.err) == (4, True)


def test_a_directory_that_a_shell_would_split_is_refused(
    ctl: Run, remote: Cluster, tmp_path: Path
) -> None:
    spaced = str(tmp_path / "my files")

    words = ("federation", "add", "east", "--remote", remote.address)
    result = ctl(*words, "--directory", spaced)

    assert (result.code, "invalid PERSYS_STATE_PATH" in result.err) == (2, True)
    assert not (tmp_path / "my files").exists()


def test_an_unreachable_remote_cluster_is_reported(add: Adding, unused_address: str) -> None:
    result = add(address=unused_address)

    assert result.code == 4
    assert f"cannot reach the remote cluster at {unused_address}" in result.err
    assert not add.directory.exists()


def test_a_name_in_use_is_refused(add: Adding, cluster: Cluster) -> None:
    cluster.add_node("n1")

    result = add(name="n1")

    assert (result.code, "n1 is already a node of this cluster" in result.err) == (1, True)
    assert add().code == 0
    again = add()
    assert (again.code, "east.env exists" in again.err) == (1, True)


def test_a_home_cluster_with_an_invalid_id_is_refused(add: Adding, cluster: Cluster) -> None:
    cluster.mode.cluster_id = "a--b"

    result = add()

    assert (result.code, "invalid cluster id 'a--b' of this cluster" in result.err) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--tier", "0"),
        ("--share", "101"),
        ("--price", "-1"),
        ("--cores-max", "-1"),
        ("--spend-max", "nan", "--price", "1"),
        ("--spend-max", "2"),
    ],
)
def test_invalid_limits_are_usage_errors(add: Adding, words: tuple[str, ...]) -> None:
    result = add(*words)

    assert (result.code, words[0] in result.err) == (2, True)


def add_federated_node(cluster: Cluster, **fields: object) -> None:
    cluster.add_node(
        "east",
        **{
            "remote": "far https://east:8551",
            "tier": 1,
            "core_hour_price": 0.5,
            "total_cpu_cores": 9.0,
            "available_cpu_cores": 7.5,
            "total_memory_mb": 8000,
            "available_memory_mb": 6000,
            "workload_count": 1,
            **fields,
        },
    )


def test_the_list_shows_federated_nodes_with_capacity_and_spend(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1")
    add_federated_node(cluster, problems=["the remote cluster does not respond"])

    head, row = ctl("federation", "list").out.splitlines()
    assert head.split("  ")[0] == "NAME"
    assert row.split() == [
        *("east", "far", "https://east:8551", "Ready", "1", "0.5", "1.5/9", "2000/8000", "MB"),
        *("1", "0.75", "the", "remote", "cluster", "does", "not", "respond"),
    ]
    (shown,) = json.loads(ctl("federation", "list", "-o", "json").out)
    assert (shown["name"], shown["cluster"], shown["spend_per_hour"]) == ("east", "far", 0.75)
    assert shown["cpu_cores"] == {"offered": 9.0, "used": 1.5}


def test_without_federated_nodes_the_list_says_so(cluster: Cluster, ctl: Run) -> None:
    cluster.add_node("n1")

    assert "no federated nodes" in ctl("federation", "list").out
    assert ctl("federation", "list", "-o", "json").out == "[]\n"


def test_a_federated_node_is_shown_with_its_workloads(cluster: Cluster, ctl: Run) -> None:
    add_federated_node(cluster)
    facts = {"remote_workload": "home--web", "remote_node": "far1"}
    cluster.add_workload("web", assigned_node_id="east", metadata=facts)
    cluster.add_workload("other", assigned_node_id="n1")

    shown = ctl("federation", "get", "east").out
    assert "Spend:            0.75 per hour" in shown
    assert shown.splitlines()[-1].split() == ["web", "container", "Running", "home--web", "far1"]
    listed = json.loads(ctl("federation", "get", "east", "-o", "json").out)
    assert [each["remote_id"] for each in listed["workloads"]] == ["home--web"]


@pytest.mark.parametrize("verb", ["get", "remove"])
def test_an_ordinary_node_is_not_a_federation(cluster: Cluster, ctl: Run, verb: str) -> None:
    cluster.add_node("n1")

    result = ctl("federation", verb, "n1")

    assert (result.code, "node n1 is not a federated node" in result.err) == (1, True)
    assert "n1" in cluster.nodes


def test_a_removed_federation_is_drained_first_and_its_files_are_deleted(
    add: Adding, cluster: Cluster, ctl: Run
) -> None:
    assert add().code == 0
    add_federated_node(cluster, drain=DrainView(state="draining", remaining=1))

    def empty() -> None:
        cluster.nodes["east"].drain.CopyFrom(DrainView(state="drained"))

    cluster.after_drain = empty
    result = ctl("federation", "remove", "east", "--directory", str(add.directory))

    assert result.code == 0, result.err
    assert "federation east is removed from this cluster" in result.out
    assert "persysctl token revoke 4f2a91c07be35d18" in result.out
    assert "east" not in cluster.nodes
    assert list(add.directory.iterdir()) == []


def test_a_federation_whose_files_are_elsewhere_is_removed(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    add_federated_node(cluster, drain=DrainView(state="drained"))

    result = ctl("federation", "remove", "east", "--directory", str(tmp_path))

    assert result.code == 0
    assert "on the machine of persys-federation stop the process" in result.out


def test_a_blocked_workload_is_named_and_the_federation_stays(cluster: Cluster, ctl: Run) -> None:
    blocked = [DrainBlock(workload_id="db", reason="no other node fits", stays=True)]
    add_federated_node(cluster, drain=DrainView(state="overdue", remaining=1, blocked=blocked))

    result = ctl("federation", "remove", "east")

    assert result.code == 1
    assert "db: no other node fits" in result.err
    assert "federation east was not removed" in result.err
    assert "east" in cluster.nodes


async def test_the_certificate_of_the_node_is_issued_with_a_join_token(
    secure_ctl: Ctl, remote: Cluster, tmp_path: Path
) -> None:
    remote.identity.prefix = "default--"
    directory = tmp_path / "federation"

    words = ("federation", "add", "east", "--remote", remote.address)
    result = await secure_ctl(*words, "--directory", str(directory))

    assert result.code == 0, result.err
    assert f". {directory / 'east.env'}; exec persys-federation)" in result.out
    variables = dict(
        line.split("=", 1) for line in (directory / "east.env").read_text().splitlines()[1:]
    )
    certificate, key = (directory / "east" / name for name in ("agent.crt", "agent.key"))
    assert variables["PERSYS_TLS_CERT"] == str(certificate)
    assert read_claims(certificate.read_bytes()).identity == Identity(Role.AGENT, "east")
    assert key.stat().st_mode & 0o777 == 0o600
    assert variables["PERSYS_CA_ADDR"]
    used = await secure_ctl("token", "list", "--kind", "join")
    assert used.out.splitlines()[1].split()[2:4] == ["agent/east", "Used"]
