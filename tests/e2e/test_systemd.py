"""The units of deploy/systemd under a real systemd, started as docs/production.md says."""

from collections.abc import Iterator

import pytest

from e2e.systemd_machine import PARTS, Machine
from e2e.waiting import eventually

pytestmark = pytest.mark.full

UNPRIVILEGED = ("ca", "scheduler", "gateway")
WORKLOAD = """\
id: {name}
type: container
resources: {{cpu_millicores: 30, memory_mb: 16}}
container:
  image: {image}
  init: true
  image_pull_policy: Never
  command: [sleep, "3600"]
  env: {{PASSWORD: "secret://{name}"}}
"""
FROM_CREDENTIALS = """\
[Service]
LoadCredential=secrets.key:/etc/persys/secrets.key
Environment=PERSYS_SECRETS_KEY_FILE=%d/secrets.key
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("systemd"))
    try:
        made.wait_until_booted()
        made.install()
        made.run("systemctl", "daemon-reload")
        made.add_variables("ca", "PERSYS_CA_ADVERTISE=127.0.0.1:8888")
        made.enable("ca")
        made.become_administrator()
        made.join("scheduler")
        made.add_variables("scheduler", "PERSYS_CA_ADDR=127.0.0.1:8888")
        made.enable("scheduler")
        made.join_agent()
        made.add_variables(
            *("agent", "DOCKER_HOST=unix:///srv/docker.sock", "PERSYS_VM_ENABLED=false"),
            *(f"PERSYS_ADMISSION_{name}_PERCENT=100" for name in ("CPU", "MEMORY", "DISK")),
        )
        made.enable("agent")
        made.join("gateway")
        made.add_variables("gateway", "PERSYS_SCHEDULER_ADDR=127.0.0.1:8085")
        made.enable("gateway")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def workload(machine: Machine, demo_image: str) -> str:
    """A container of the machine's agent, with a secret."""
    name = f"{machine.node_id}-w"
    machine.write("/srv/ada/value", "hunter2")
    eventually(lambda: machine.node_status() == "Ready", lambda: machine.journal("agent"))
    machine.run("persysctl", "secret", "put", name, "--from-file", "/srv/ada/value")
    machine.write("/srv/ada/workload.yaml", WORKLOAD.format(name=name, image=demo_image))
    machine.run("persysctl", "apply", "-f", "/srv/ada/workload.yaml", "--wait")
    return name


@pytest.mark.parametrize("part", PARTS)
def test_an_enabled_unit_is_active(machine: Machine, part: str) -> None:
    assert machine.property(part, "ActiveState") == "active", machine.journal(part)
    assert machine.property(part, "UnitFileState") == "enabled"


def test_the_agent_registers_at_the_scheduler_and_runs_a_workload(
    machine: Machine, workload: str
) -> None:
    assert machine.container(workload).running


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_process_is_started_again_and_restarts_no_container(
    machine: Machine, workload: str, part: str
) -> None:
    before, killed = machine.container(workload), machine.pid(part)

    machine.run("systemctl", "kill", "--signal=KILL", f"persys-{part}")

    eventually(
        lambda: (
            machine.property(part, "ActiveState") == "active"
            and machine.pid(part) not in (0, killed)
        ),
        lambda: machine.journal(part),
    )
    assert machine.property(part, "NRestarts") == "1"
    eventually(lambda: machine.node_status() == "Ready", lambda: machine.journal(part))
    assert machine.container(workload) == before


def test_a_restart_of_the_agent_restarts_no_container(machine: Machine, workload: str) -> None:
    before = machine.container(workload)

    machine.run("systemctl", "restart", "persys-agent")

    eventually(lambda: machine.node_status() == "Ready", lambda: machine.journal("agent"))
    assert machine.container(workload) == before


@pytest.mark.parametrize("part", UNPRIVILEGED)
def test_a_process_of_the_control_plane_has_no_privileges(machine: Machine, part: str) -> None:
    user = machine.run("id", "-u", "persys").strip()

    process = machine.process(part)

    assert set(process["Uid"].split()) == {user}
    assert int(process["CapEff"], 16) == int(process["CapBnd"], 16) == 0
    assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("part", UNPRIVILEGED)
def test_a_process_of_the_control_plane_can_write_its_own_directory_only(
    machine: Machine, part: str
) -> None:
    def touch(directory: str) -> int:
        words = ("nsenter", "-m", "-t", str(machine.pid(part)), "touch", f"{directory}/trial")
        return machine.try_run(*words).returncode

    refused = [touch(place) for place in ("/etc", "/etc/persys", "/usr", "/var/lib/persys")]

    assert touch(f"/var/lib/persys/{part}") == 0
    assert 0 not in refused


def test_state_and_keys_are_closed_to_other_users(machine: Machine) -> None:
    def mode(path: str) -> str:
        return machine.run("stat", "-c", "%U %a", path).strip()

    for part in UNPRIVILEGED:
        assert mode(f"/var/lib/persys/{part}") == "persys 700"
    for part in ("scheduler", "gateway"):
        assert mode(f"/etc/persys/certs/persys-{part}") == "persys 700"
        assert mode(f"/etc/persys/certs/persys-{part}/{part}.key") == "persys 600"
    assert mode("/etc/persys/certs/agent.key") == "root 600"
    assert mode("/var/lib/persys/state.db") == "root 600"


def test_the_key_of_secrets_can_be_a_credential_that_only_root_may_read(
    machine: Machine, workload: str
) -> None:
    kept = "/var/lib/persys/scheduler/secrets.key"
    machine.run("install", "-m", "600", "-o", "root", kept, "/etc/persys/secrets.key")
    machine.write("/etc/systemd/system/persys-scheduler.service.d/key.conf", FROM_CREDENTIALS)
    machine.run("mv", kept, "/srv/ada/secrets.key")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "persys-scheduler")

    eventually(lambda: machine.node_status() == "Ready", lambda: machine.journal("scheduler"))
    before = machine.container(workload)
    machine.run("persysctl", "workload", "redeploy", workload, "--wait")

    assert machine.container(workload).id != before.id
    assert "PASSWORD=hunter2" in machine.container(workload).env
    assert machine.try_run("test", "-e", kept).returncode != 0, "no other key was made"


def test_after_a_reboot_all_units_are_active_again(machine: Machine, workload: str) -> None:
    before = machine.container(workload)

    machine.reboot()

    for part in PARTS:
        assert machine.property(part, "ActiveState") == "active", machine.journal(part)
    eventually(lambda: machine.node_status() == "Ready", lambda: machine.journal("agent"))
    assert machine.container(workload) == before
