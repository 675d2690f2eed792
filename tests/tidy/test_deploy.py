"""What is in deploy/ names programs and variables that there are."""

import dataclasses
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from persys.agent.settings import AgentSettings
from persys.ca.settings import CaSettings
from persys.cli.commands.federation_setup import DIRECTORY, STATE
from persys.gateway.settings import GatewaySettings
from persys.infra.settings import load
from persys.scheduler.settings import SchedulerSettings

SETTINGS: dict[str, type[Any]] = {
    "agent": AgentSettings,
    "ca": CaSettings,
    "gateway": GatewaySettings,
    "scheduler": SchedulerSettings,
}
VARIABLE = re.compile(r"^#?([A-Z][A-Z0-9_]+)=", re.M)
OF_PERSYSCTL = {
    "PERSYS_GRPC_ENDPOINT",
    "PERSYS_CA_ADDR",
    "PERSYS_TLS_CA",
    "PERSYS_TLS_CERT",
    "PERSYS_TLS_KEY",
}


def variables(part: str) -> set[str]:
    fields = dataclasses.fields(SETTINGS[part])
    return {name for field in fields for name in field.metadata["env"]}


def console_scripts(root: Path) -> set[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["scripts"])


@pytest.mark.parametrize("part", SETTINGS)
def test_the_unit_starts_a_program_of_ours_and_starts_it_again(root: Path, part: str) -> None:
    unit = (root / "deploy" / "systemd" / f"persys-{part}.service").read_text("utf-8")

    assert f"\nExecStart=/opt/persys/bin/persys-{part}\n" in unit
    assert f"persys-{part}" in console_scripts(root)
    for line in ("Type=exec", "Restart=always", f"EnvironmentFile=-/etc/persys/{part}.env"):
        assert f"\n{line}\n" in unit


@pytest.mark.parametrize("part", SETTINGS)
def test_every_variable_of_the_unit_is_one_of_its_process(root: Path, part: str) -> None:
    systemd = root / "deploy" / "systemd"
    unit = (systemd / f"persys-{part}.service").read_text("utf-8")
    named = set(VARIABLE.findall((systemd / f"{part}.env").read_text("utf-8")))
    named |= set(re.findall(r"^Environment=(\w+)=", unit, re.M))

    assert named <= variables(part)


def test_the_agent_starts_at_boot_after_the_network_docker_and_libvirt(root: Path) -> None:
    unit = (root / "deploy" / "systemd" / "persys-agent.service").read_text("utf-8")

    (after,) = re.findall(r"^After=(.+)$", unit, re.M)
    assert set(after.split()) >= {"network-online.target", "docker.service", "libvirtd.service"}
    assert "\nWantedBy=multi-user.target\n" in unit


def test_the_unit_of_a_federation_has_its_own_settings_and_state(root: Path) -> None:
    unit = (root / "deploy" / "systemd" / "persys-federation@.service").read_text("utf-8")

    assert "persys-federation" in console_scripts(root)
    for line in (
        "ExecStart=/opt/persys/bin/persys-federation",
        f"EnvironmentFile={DIRECTORY}/%i.env",
        f"ReadWritePaths=-{DIRECTORY}/%i",
        f"StateDirectory={STATE.relative_to('/var/lib')}/%i",
        "Type=exec",
        "Restart=always",
        "User=persys",
    ):
        assert f"\n{line}\n" in unit


def test_each_program_has_a_debian_package(root: Path) -> None:
    control = (root / "deploy" / "debian" / "control").read_text("utf-8")
    packages = set(re.findall(r"^Package: (.+)$", control, re.M))

    services = console_scripts(root) - {"persys", "persysctl"}
    assert packages == {*services, "persys-common", "persys-ctl"}


def test_maintainer_scripts_are_valid_and_stop_at_the_first_error(root: Path) -> None:
    scripts = sorted((root / "deploy" / "debian").glob("*.*"))

    assert len(scripts) == 6
    for script in scripts:
        assert script.read_text("utf-8").startswith("#!/bin/sh\nset -e\n"), script.name
        checked = subprocess.run(["sh", "-n", script], capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b""), script.name


def test_only_the_agent_runs_as_root(root: Path) -> None:
    users = {
        part: re.findall(
            r"^User=(.+)$",
            (root / "deploy" / "systemd" / f"persys-{part}.service").read_text("utf-8"),
            re.M,
        )
        for part in SETTINGS
    }

    assert users == {"agent": [], "ca": ["persys"], "gateway": ["persys"], "scheduler": ["persys"]}


def test_the_agent_shares_the_mounts_of_its_machine(root: Path) -> None:
    unit = (root / "deploy" / "systemd" / "persys-agent.service").read_text("utf-8")

    own_mounts = re.findall(r"^(Protect\w+|Private\w+|ReadWritePaths|ReadOnlyPaths)=", unit, re.M)
    assert own_mounts == []


def test_the_compose_file_sets_only_known_variables(root: Path) -> None:
    text = (root / "deploy" / "compose" / "compose.yaml").read_text("utf-8")
    services = yaml.safe_load(text)["services"]

    for name, service in services.items():
        program = (service.get("entrypoint") or service.get("command") or [""])[0]
        if program.startswith("persys-"):
            known = variables(program.removeprefix("persys-"))
        elif program == "persysctl":
            known = OF_PERSYSCTL
        else:
            continue
        assert set(service.get("environment", {})) <= known, name


def compose_services(root: Path) -> dict[str, dict[str, Any]]:
    text = (root / "deploy" / "compose" / "compose.yaml").read_text("utf-8")
    services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
    return services


def test_only_schedulers_and_coredns_reach_the_etcd_of_the_compose_file(root: Path) -> None:
    services = compose_services(root)
    (store,) = services["etcd"]["networks"]

    inside = {name for name, service in services.items() if store in service["networks"]}
    assert inside == {"etcd", "coredns", "scheduler-1", "scheduler-2", "scheduler-3"}
    assert "ports" not in services["etcd"]


def test_grafana_of_the_compose_file_has_no_default_password(root: Path) -> None:
    grafana = compose_services(root)["grafana"]
    (script,) = grafana["command"]

    assert "GF_SECURITY_ADMIN_PASSWORD__FILE" in script
    assert "/dev/urandom" in script
    assert "GF_SECURITY_ADMIN_PASSWORD" not in grafana["environment"]


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_monitoring_of_the_compose_file_listens_on_this_machine_only(root: Path, name: str) -> None:
    (port,) = compose_services(root)[name]["ports"]

    assert port.startswith("${BIND_MONITORING:-127.0.0.1}:")


def test_every_variable_of_the_sample_is_one_of_the_scheduler(root: Path) -> None:
    named = set(VARIABLE.findall((root / "sample.env").read_text("utf-8")))

    assert "ETCD_ENDPOINTS" in named
    assert named <= variables("scheduler")


def manifests(root: Path, name: str) -> dict[str, Any]:
    """The documents of a file in deploy/kubernetes, by their kind."""
    text = (root / "deploy" / "kubernetes" / name).read_text("utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.mark.parametrize("name", ["agent.yaml", "agent-join.yaml"])
def test_kubernetes_accepts_the_manifest(root: Path, name: str) -> None:
    for document in manifests(root, name).values():
        kubernetes_validate.validate(document, "1.29", strict=True)


@pytest.mark.parametrize("name", ["agent.yaml", "agent-join.yaml"])
def test_the_daemon_set_gives_the_agent_all_mounts_and_permissions(root: Path, name: str) -> None:
    documents = manifests(root, name)
    daemon_set = documents["DaemonSet"]
    template = daemon_set["spec"]["template"]
    pod, (agent,) = template["spec"], template["spec"]["containers"]

    namespaces = {one["metadata"].get("namespace", "persys-system") for one in documents.values()}
    assert namespaces == {"persys-system"}
    assert daemon_set["metadata"]["name"] == "persys-agent"
    assert daemon_set["spec"]["selector"]["matchLabels"] == {"app": "persys-agent"}
    assert template["metadata"]["labels"]["app"] == "persys-agent"
    assert pod["hostNetwork"]
    assert pod["hostPID"]
    assert agent["image"] == "persys/compute-agent:latest"
    assert agent["securityContext"]["privileged"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in (agent, *pod.get("initContainers", ())):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    mounts = {mount["mountPath"]: mount for mount in agent["volumeMounts"]}
    assert mounts["/var/lib/persys"]["mountPropagation"] == "Bidirectional"
    assert {"/var/run/docker.sock", "/var/run/libvirt"} <= mounts.keys()
    named = {one["name"]: one for one in agent["env"]}
    assert named.keys() <= variables("agent")
    assert named["PERSYS_NODE_ID"]["valueFrom"]["fieldRef"] == {"fieldPath": "spec.nodeName"}
    keys = [one["valueFrom"].get("configMapKeyRef", {}).get("key") for one in agent["env"]]
    assert set(filter(None, keys)) <= documents["ConfigMap"]["data"].keys()


def test_certificates_of_agents_come_from_a_secret(root: Path) -> None:
    pod = manifests(root, "agent.yaml")["DaemonSet"]["spec"]["template"]["spec"]
    (certs,) = (volume for volume in pod["volumes"] if volume["name"] == "certs")
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "certs")

    assert certs["secret"]["secretName"] == "persys-agent-certs"
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/persys/certs", True)


def test_an_agent_can_join_with_the_token_of_its_node(root: Path) -> None:
    pod = manifests(root, "agent-join.yaml")["DaemonSet"]["spec"]["template"]["spec"]

    assert "persys-agent join" in pod["initContainers"][0]["args"][0]


def test_programs_of_the_compose_file_are_ours(root: Path) -> None:
    text = (root / "deploy" / "compose" / "compose.yaml").read_text("utf-8")

    programs = set(re.findall(r"(?:command|entrypoint): \[(persys[\w-]*)\]", text))
    assert programs
    assert programs <= console_scripts(root)


@pytest.mark.parametrize("part", ["ca", "gateway", "scheduler"])
def test_every_process_writes_only_in_the_state_directory_of_its_unit(
    root: Path, part: str
) -> None:
    """It sees all else as read-only, and would fail at the first write."""
    systemd = root / "deploy" / "systemd"
    unit = (systemd / f"persys-{part}.service").read_text("utf-8")
    environment = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.M))
    environment |= dict(
        re.findall(r"^(\w+)=(.*)$", (systemd / f"{part}.env").read_text("utf-8"), re.M)
    )

    settings = load(SETTINGS[part], [], environment, program=part).settings

    places = [
        found
        for field in dataclasses.fields(settings)
        for found in re.findall(r"/(?:var|run|srv)/[\w./-]+", str(getattr(settings, field.name)))
    ]
    own = f"/var/lib/persys/{part}"
    assert f"\nStateDirectory=persys/{part}\n" in unit
    assert [place for place in places if place != own and not place.startswith(f"{own}/")] == []


def test_the_secrets_key_is_in_a_directory_that_the_scheduler_can_write(root: Path) -> None:
    unit = (root / "deploy" / "systemd" / "persys-scheduler.service").read_text("utf-8")

    # Without this a scheduler on etcd would look for it in a directory that is root's.
    key = "/var/lib/persys/scheduler/secrets.key"
    assert f"\nEnvironment=PERSYS_SECRETS_KEY_FILE={key}\n" in unit


def test_the_package_has_every_file_of_deploy_systemd(root: Path) -> None:
    """`persys cluster create` installs them. setuptools does not copy a link to a directory."""
    packaged = root / "src" / "persys" / "cli" / "hosts" / "systemd"

    assert not packaged.is_symlink()
    assert {path.name: path.resolve() for path in packaged.iterdir()} == {
        path.name: path for path in (root / "deploy" / "systemd").resolve().iterdir()
    }
