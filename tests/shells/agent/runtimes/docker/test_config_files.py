"""Files and secrets on a node: seen inside the container as they were sent, and in no text that leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest

import compose_binaries
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import Agent, docker, eventually

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
VALUE = "hunter2-of-the-test"

Shell = Callable[..., agent_pb2.ContainerSpec]
NewAgent = Callable[..., Agent]


@pytest.fixture
def own(new_agent: NewAgent) -> Agent:
    one = new_agent()
    one.start()
    return one


def files_below(agent: Agent) -> list[Path]:
    return sorted(path for path in (agent.directory / "files").rglob("*") if path.is_file())


def with_files(spec: agent_pb2.ContainerSpec, key: str = VALUE) -> agent_pb2.ContainerSpec:
    spec.files.add(path="/etc/app/key", content=key.encode(), mode=0o400, secret=True)
    spec.files.add(path="/etc/motd", content=b"\xffhello\n", mode=0o444)
    return spec


def order(
    workload_id: str, spec: agent_pb2.WorkloadSpec, *secret_env: str
) -> agent_pb2.ApplyWorkloadRequest:
    return agent_pb2.ApplyWorkloadRequest(
        id=workload_id, revision_id="r1", spec=spec, secret_env=secret_env
    )


def test_a_file_has_its_content_and_mode_inside_and_cannot_be_changed(
    own: Agent, sleeper: agent_pb2.ContainerSpec
) -> None:
    own.apply("web", with_files(sleeper))
    own.wait_for("web", RUNNING)

    assert own.inside("web", "cat", "/etc/app/key").strip() == VALUE
    assert own.inside("web", "stat", "-c", "%a %u %g", "/etc/app/key").split() == ["400", "0", "0"]
    assert own.inside("web", "stat", "-c", "%a", "/etc/motd").strip() == "444"
    assert own.inside("web", "sh", "-c", "echo x > /etc/motd || echo no").strip() == "no"
    for path in files_below(own):
        assert path.parent.stat().st_mode & 0o777 == 0o700


def test_files_survive_an_agent_restart_and_are_recreated_when_missing(
    own: Agent, sleeper: agent_pb2.ContainerSpec
) -> None:
    own.apply("web", with_files(sleeper))
    own.wait_for("web", RUNNING)
    (container,) = own.containers("web")
    own.kill()
    docker("kill", container)
    for path in files_below(own):
        path.unlink()

    own.start()
    state = ("inspect", "--format", "{{.State.Running}}", container)
    eventually(lambda: docker(*state).strip() == "true", "the container is started again")

    assert own.containers("web") == [container]
    assert own.inside("web", "cat", "/etc/app/key").strip() == VALUE


def test_a_new_revision_has_the_new_content(own: Agent, sleeper: agent_pb2.ContainerSpec) -> None:
    changed = agent_pb2.ContainerSpec()
    changed.CopyFrom(sleeper)
    own.apply("web", with_files(sleeper))
    own.wait_for("web", RUNNING)
    first = own.containers("web")

    changed.files.add(path="/etc/app/key", content=b"another-value", mode=0o400, secret=True)
    own.apply("web", changed, revision="r2")
    eventually(lambda: own.containers("web", running=True) not in ([], first), "the new one runs")

    assert own.inside("web", "cat", "/etc/app/key") == "another-value"
    assert len(files_below(own)) == 1


def test_nothing_is_left_after_a_delete(own: Agent, sleeper: agent_pb2.ContainerSpec) -> None:
    own.apply("web", with_files(sleeper))
    own.wait_for("web", RUNNING)

    own.delete("web")
    own.wait_until_gone("web")

    assert not files_below(own)
    assert not list((own.directory / "files" / own.node_id).iterdir())


def test_leftover_files_of_a_deleted_workload_are_garbage(
    new_agent: NewAgent, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent = new_agent(PERSYS_GC_ZOMBIE_AFTER="1ms", PERSYS_GC_INTERVAL="1h")
    agent.start()
    agent.apply("gone", sleeper)
    agent.wait_for("gone", RUNNING)
    agent.delete("gone")
    agent.wait_until_gone("gone")
    left = agent.directory / "files" / agent.node_id / "gone"
    left.mkdir(parents=True)
    (left / "0").write_text(VALUE)

    def is_gone() -> bool:
        agent.stub.GarbageCollect(agent_pb2.GarbageCollectRequest(), timeout=10)
        return not left.exists()

    eventually(is_gone, "they are removed")


def test_the_value_of_a_secret_is_in_no_status_action_or_line(own: Agent, shell: Shell) -> None:
    spec = with_files(shell("echo password is $PASSWORD; cat /etc/app/key; exit 3"), "key-of-test")
    spec.env["PASSWORD"] = VALUE
    request = order("job", agent_pb2.WorkloadSpec(container=spec), "PASSWORD")

    own.stub.ApplyWorkload(request, timeout=10)
    status = own.wait_for("job", FAILED)
    actions = own.stub.ListActions(agent_pb2.ListActionsRequest(), timeout=10)
    log = (own.directory / "log").read_text()

    assert "password is ********" in str(status)
    for text in (str(status), str(actions), log):
        assert VALUE not in text
        assert "key-of-test" not in text


def test_no_output_or_file_of_a_stack_contains_a_secret_value(
    new_agent: NewAgent, demo_image: str, unique_id: str
) -> None:
    agent = new_agent(PERSYS_COMPOSE_ENABLED="true", PERSYS_COMPOSE_BINARY=compose_binaries.V1)
    agent.start()
    text = f"""
services:
  web:
    image: {demo_image}
    command: [sh, -c, "echo password is $$PASSWORD; exit 3"]
    environment: {{PASSWORD: "${{PASSWORD}}"}}
"""
    stack = agent_pb2.ComposeSpec(compose_yaml=text, env={"PASSWORD": VALUE})
    request = order(unique_id, agent_pb2.WorkloadSpec(compose=stack), "PASSWORD")

    agent.stub.ApplyWorkload(request, timeout=10)
    status = agent.wait_for(unique_id, FAILED)

    assert "password is ********" in str(status)
    assert VALUE not in str(status)
    assert VALUE not in (agent.directory / "log").read_text()
    holders = [
        path
        for path in agent.directory.rglob("*")
        if path.is_file() and VALUE.encode() in path.read_bytes()
    ]
    assert holders == []
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)


def test_a_refusal_contains_no_secret_value(own: Agent, sleeper: agent_pb2.ContainerSpec) -> None:
    sleeper.env["PASSWORD"] = sleeper.restart_policy.policy = VALUE
    request = order("web", agent_pb2.WorkloadSpec(container=sleeper), "PASSWORD")

    response = own.stub.ApplyWorkload(request, timeout=10)

    assert not response.applied
    assert "'********' is unknown" in response.message
    assert VALUE not in str(response)


def test_the_journal_is_the_owners_alone_even_if_it_was_not(new_agent: NewAgent) -> None:
    agent = new_agent()
    journal = agent.directory / "state.db"
    journal.touch(mode=0o644)
    agent.start()

    beside = [path for path in agent.directory.iterdir() if path.name.startswith("state.db")]
    assert {path.stat().st_mode & 0o777 for path in beside} == {0o600}
