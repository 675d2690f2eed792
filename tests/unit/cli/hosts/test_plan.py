"""The plan of a cluster: which steps, in which order, with which input."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from persys.cli.hosts import scripts
from persys.cli.hosts.plan import (
    Cluster,
    Output,
    Program,
    Step,
    etcd_settings,
    gateway_hosts,
    phases,
)
from unit.cli.hosts.builders import a_cluster

ETCD = Program(Path("etcd"), "e1")


def steps(cluster: Cluster) -> Iterator[Step]:
    return (step for phase in phases(cluster) for step in phase)


def names_of(cluster: Cluster, host: str) -> list[str]:
    return [step.name for step in steps(cluster) if step.member.name == host]


def phase_of(cluster: Cluster, host: str, name: str) -> int:
    (number,) = (
        number
        for number, phase in enumerate(phases(cluster))
        if any(step.name == name and step.member.name == host for step in phase)
    )
    return number


def test_one_host_has_the_embedded_store() -> None:
    cluster = a_cluster(1)

    names = names_of(cluster, "a")

    assert not [name for name in names if "etcd" in name]
    assert [name for name in names if name.endswith("-start")] == [
        *("ca-start", "scheduler-start", "gateway-start", "agent-start")
    ]
    (settings,) = (step for step in steps(cluster) if step.name == "scheduler-settings")
    assert "PERSYS_STORE" not in settings.action
    assert "PERSYS_CA_ADDR 10.0.0.1:8888" in settings.action


def test_three_hosts_have_three_schedulers_on_etcd() -> None:
    cluster = a_cluster(3)

    for host in "abc":
        assert "etcd-start" in names_of(cluster, host)
    (settings,) = (
        step
        for step in steps(cluster)
        if step.name == "scheduler-settings" and step.member.name == "b"
    )
    assert "PERSYS_STORE etcd" in settings.action
    assert "ETCD_ENDPOINTS 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379" in settings.action
    assert "SCHEDULER_ADVERTISE_IP 10.0.0.2" in settings.action


def test_further_hosts_have_an_agent_only() -> None:
    names = names_of(a_cluster(4), "d")

    assert [name for name in names if name.endswith("-start")] == ["agent-start"]
    assert "etcd-program" not in names


def test_the_ca_starts_before_certificates_and_etcd_before_schedulers() -> None:
    cluster = a_cluster(3)

    assert phase_of(cluster, "a", "ca-start") < phase_of(cluster, "c", "scheduler-certificate")
    for host in "abc":
        assert phase_of(cluster, host, "etcd-start") < phase_of(cluster, "a", "etcd-answers")
        assert phase_of(cluster, host, "etcd-answers") < phase_of(cluster, "a", "scheduler-start")


def test_other_schedulers_start_with_the_key_of_the_first() -> None:
    cluster = a_cluster(3)

    for host in "bc":
        key = phase_of(cluster, host, "secrets-key")
        assert phase_of(cluster, "a", "secrets-key") < key
        assert key < phase_of(cluster, host, "scheduler-start")
    created, *copied = (step for step in steps(cluster) if step.name == "secrets-key")
    assert created.given is None
    assert all(isinstance(step.given, Output) for step in copied)


def test_agents_join_after_all_schedulers_have_started() -> None:
    cluster = a_cluster(4)

    assert phase_of(cluster, "d", "agent-join") > phase_of(cluster, "c", "scheduler-start")


def test_tokens_are_created_on_the_first_host_and_used_on_the_other() -> None:
    (join,) = (
        step
        for step in steps(a_cluster(3))
        if step.name == "agent-join" and step.member.name == "c"
    )

    assert isinstance(join.given, Output)
    assert join.given.member.name == "a"
    assert "ca token --role agent --name c" in join.given.script
    assert "persys-agent join 10.0.0.1:8085,10.0.0.2:8085,10.0.0.3:8085 -" in join.action


def test_another_package_repeats_the_installation_and_restarts_our_programs_only() -> None:
    before = {(step.member, step.name): step.key for step in steps(a_cluster(3))}
    after = {(step.member, step.name): step.key for step in steps(a_cluster(3, digest="d2"))}

    changed = {name for (member, name), key in after.items() if before[member, name] != key}

    assert changed == {
        *("programs", "units", "ca-start", "scheduler-start", "gateway-start", "agent-start")
    }


def test_the_same_cluster_has_the_same_keys() -> None:
    assert [step.key for step in steps(a_cluster(3))] == [step.key for step in steps(a_cluster(3))]


def test_a_further_host_repeats_nothing_on_the_others() -> None:
    before = {(step.member, step.name): step.key for step in steps(a_cluster(3))}
    after = {(step.member, step.name): step.key for step in steps(a_cluster(4))}

    assert {where: key for where, key in after.items() if where[0].name != "d"} == before


def test_debian_packages_have_units_and_users() -> None:
    names = names_of(a_cluster(1, debs=True), "a")

    assert "programs" in names
    assert "units" not in names


def test_debian_packages_keep_existing_settings_without_a_question() -> None:
    """A file in /etc/persys that an administrator wrote before would stop the installation."""
    (install,) = (step for step in steps(a_cluster(1, debs=True)) if step.name == "programs")

    assert "Dpkg::Options::=--force-confold" in install.action


def test_etcd_is_sent_if_it_is_given() -> None:
    given = [step for step in steps(a_cluster(3, etcd=ETCD)) if step.name == "etcd-program"]

    assert {step.given for step in given} == {Path("etcd")}
    assert all(scripts.ETCD_PROGRAM in step.action for step in given)


def test_another_etcd_program_is_sent_and_started() -> None:
    before = {step.key for step in steps(a_cluster(3, etcd=ETCD))}
    after = steps(a_cluster(3, etcd=ETCD._replace(digest="e2")))

    assert {step.name for step in after if step.key not in before} == {"etcd-program", "etcd-start"}


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("etcd Version: 3.4.23", ""),
        ("etcd Version: 3.6.1", ""),
        ("etcd Version: 10.0.0", ""),
        ("etcd Version: 3.3.27", "etcd Version: 3.3.27 is too old: expected 3.4 or newer"),
        ("etcd Version: 2.3.8", "etcd Version: 2.3.8 is too old: expected 3.4 or newer"),
        ("Usage: x", "./etcd does not print the version of etcd"),
    ],
)
def test_an_etcd_that_is_too_old_is_refused(version: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text(f"#!/bin/sh\necho '{version}'\necho 'Git SHA: 1'\n")
    (tmp_path / "etcd").chmod(0o755)

    ended = run_script(scripts.CHECK_ETCD + "check_etcd ./etcd\n", cwd=tmp_path)

    assert ended.returncode == (1 if problem else 0)
    assert ended.stderr.startswith(problem)


def test_etcd_requires_certificates_of_clients_and_peers() -> None:
    cluster = a_cluster(3)

    lines = etcd_settings(cluster, cluster.members[1]).splitlines()

    assert "ETCD_CLIENT_CERT_AUTH=true" in lines
    assert "ETCD_PEER_CLIENT_CERT_AUTH=true" in lines
    assert "ETCD_LISTEN_CLIENT_URLS=https://10.0.0.2:2379" in lines
    cluster_line = "a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,c=https://10.0.0.3:2380"
    assert f"ETCD_INITIAL_CLUSTER={cluster_line}" in lines


def test_the_certificate_of_the_gateway_has_its_names_once() -> None:
    cluster = a_cluster(1)._replace(gateway_hosts=("persys.example.org", "a"))

    assert gateway_hosts(cluster) == ["10.0.0.1", "a", "a.example.org", "persys.example.org"]


CLUSTERS = (
    a_cluster(1),
    a_cluster(4),
    a_cluster(5, schedulers=5, etcd=ETCD),
    a_cluster(1, debs=True),
)


@pytest.mark.parametrize("cluster", CLUSTERS, ids=["one", "four", "five", "debs"])
def test_every_step_has_one_name_on_its_host_and_every_script_parses(cluster: Cluster) -> None:
    found = [(step.member.name, step.name) for step in steps(cluster)]

    assert len(set(found)) == len(found)
    texts = {text for step in steps(cluster) for text in (step.check_script, step.action_script)}
    texts |= {step.given.script for step in steps(cluster) if isinstance(step.given, Output)}
    for text in texts:
        parsed = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True)
        assert parsed.returncode == 0, f"{parsed.stderr}\n{text}"


def run_script(script: str, *, cwd: Path) -> subprocess.CompletedProcess[str]:
    text = scripts.PRELUDE.replace("cd /\n", "") + script
    return subprocess.run(["sh", "-c", text], cwd=cwd, capture_output=True, text=True, check=False)


def test_a_variable_is_set_once_and_others_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "x.env"
    file.write_text("# comment\nKEPT=1\nA=old\n#B=example\n")
    script = "set_variable x.env A 10.0.0.1:8888\nset_variable x.env B two\n"

    run_script(script + script, cwd=tmp_path)

    assert file.read_text() == "# comment\nKEPT=1\nA=10.0.0.1:8888\n#B=example\nB=two\n"
    assert run_script("has_variable x.env A 10.0.0.1:8888", cwd=tmp_path).returncode == 0
    assert run_script("has_variable x.env A 10.0.0.1", cwd=tmp_path).returncode == 1


def test_a_recorded_key_is_found_and_another_one_is_not(tmp_path: Path) -> None:
    state = f"state={tmp_path}/state\n"
    run_script(state + scripts.record("step", "k1"), cwd=tmp_path)

    assert run_script(state + scripts.is_recorded("step", "k1"), cwd=tmp_path).returncode == 0
    assert run_script(state + scripts.is_recorded("step", "k2"), cwd=tmp_path).returncode == 1
    assert run_script(state + scripts.is_recorded("other", "k1"), cwd=tmp_path).returncode == 1


def test_a_file_is_written_and_compared(tmp_path: Path) -> None:
    content = "A=$HOME\nB='x'\n"

    assert run_script(scripts.has_file("unit", content), cwd=tmp_path).returncode == 1
    run_script(scripts.write_file("unit", content), cwd=tmp_path)

    assert (tmp_path / "unit").read_text() == content
    assert run_script(scripts.has_file("unit", content), cwd=tmp_path).returncode == 0
    assert run_script(scripts.has_file("unit", "A=1\n"), cwd=tmp_path).returncode == 1
