"""The units of deploy/systemd under a real systemd, started as in docs/how-to/production.md."""

from collections.abc import Iterator

import pytest

from e2e.systemd_host import PARTS, WORKLOAD, SystemdHost
from e2e.waiting import eventually

pytestmark = pytest.mark.full

UNPRIVILEGED = ("ca", "scheduler", "gateway")
FROM_CREDENTIALS = """\
[Service]
LoadCredential=secrets.key:/etc/persys/secrets.key
Environment=PERSYS_SECRETS_KEY_FILE=%d/secrets.key
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdHost]:
    created = SystemdHost(tmp_path_factory.mktemp("systemd"))
    try:
        created.wait_until_booted()
        created.install()
        created.run("systemctl", "daemon-reload")
        created.start_cluster()
        yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def workload(host: SystemdHost, demo_image: str) -> str:
    """A container of the host's agent, with a secret."""
    name = f"{host.node_id}-w"
    host.write("/srv/ada/value", "hunter2")
    eventually(lambda: host.node_status() == "Ready", lambda: host.journal("agent"))
    host.run("persysctl", "secret", "put", name, "--from-file", "/srv/ada/value")
    host.write("/srv/ada/workload.yaml", WORKLOAD.format(name=name, image=demo_image))
    host.run("persysctl", "apply", "-f", "/srv/ada/workload.yaml", "--wait")
    return name


@pytest.mark.parametrize("part", PARTS)
def test_an_enabled_unit_is_active(host: SystemdHost, part: str) -> None:
    assert host.property(part, "ActiveState") == "active", host.journal(part)
    assert host.property(part, "UnitFileState") == "enabled"


def test_the_agent_registers_and_runs_a_workload(host: SystemdHost, workload: str) -> None:
    assert host.container(workload).running


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_process_is_restarted_without_restarting_containers(
    host: SystemdHost, workload: str, part: str
) -> None:
    before, killed = host.container(workload), host.pid(part)

    host.run("systemctl", "kill", "--signal=KILL", f"persys-{part}")

    eventually(
        lambda: (
            host.property(part, "ActiveState") == "active" and host.pid(part) not in (0, killed)
        ),
        lambda: host.journal(part),
    )
    assert host.property(part, "NRestarts") == "1"
    eventually(lambda: host.node_status() == "Ready", lambda: host.journal(part))
    assert host.container(workload) == before


def test_a_restart_of_the_agent_does_not_restart_containers(
    host: SystemdHost, workload: str
) -> None:
    before = host.container(workload)

    host.run("systemctl", "restart", "persys-agent")

    eventually(lambda: host.node_status() == "Ready", lambda: host.journal("agent"))
    assert host.container(workload) == before


@pytest.mark.parametrize("part", UNPRIVILEGED)
def test_a_control_plane_process_has_no_privileges(host: SystemdHost, part: str) -> None:
    user = host.run("id", "-u", "persys").strip()

    process = host.process(part)

    assert set(process["Uid"].split()) == {user}
    assert int(process["CapEff"], 16) == int(process["CapBnd"], 16) == 0
    assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("part", UNPRIVILEGED)
def test_a_control_plane_process_can_write_only_its_own_directory(
    host: SystemdHost, part: str
) -> None:
    def touch(directory: str) -> int:
        words = ("nsenter", "-m", "-t", str(host.pid(part)), "touch", f"{directory}/trial")
        return host.try_run(*words).returncode

    refused = [touch(place) for place in ("/etc", "/etc/persys", "/usr", "/var/lib/persys")]

    assert touch(f"/var/lib/persys/{part}") == 0
    assert 0 not in refused


def test_state_and_keys_are_not_readable_by_other_users(host: SystemdHost) -> None:
    def mode(path: str) -> str:
        return host.run("stat", "-c", "%U %a", path).strip()

    for part in UNPRIVILEGED:
        assert mode(f"/var/lib/persys/{part}") == "persys 700"
    for part in ("scheduler", "gateway"):
        assert mode(f"/etc/persys/certs/persys-{part}") == "persys 700"
        assert mode(f"/etc/persys/certs/persys-{part}/{part}.key") == "persys 600"
    assert mode("/etc/persys/certs/agent.key") == "root 600"
    assert mode("/var/lib/persys/state.db") == "root 600"


def test_the_secrets_key_can_be_a_systemd_credential(host: SystemdHost, workload: str) -> None:
    kept = "/var/lib/persys/scheduler/secrets.key"
    host.run("install", "-m", "600", "-o", "root", kept, "/etc/persys/secrets.key")
    host.write("/etc/systemd/system/persys-scheduler.service.d/key.conf", FROM_CREDENTIALS)
    host.run("mv", kept, "/srv/ada/secrets.key")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "persys-scheduler")

    eventually(lambda: host.node_status() == "Ready", lambda: host.journal("scheduler"))
    before = host.container(workload)
    host.run("persysctl", "workload", "redeploy", workload, "--wait")

    assert host.container(workload).id != before.id
    assert "PASSWORD=hunter2" in host.container(workload).env
    assert host.try_run("test", "-e", kept).returncode != 0, "no other key was made"


def test_all_units_are_active_after_a_reboot(host: SystemdHost, workload: str) -> None:
    before = host.container(workload)

    host.reboot()

    for part in PARTS:
        assert host.property(part, "ActiveState") == "active", host.journal(part)
    eventually(lambda: host.node_status() == "Ready", lambda: host.journal("agent"))
    assert host.container(workload) == before
