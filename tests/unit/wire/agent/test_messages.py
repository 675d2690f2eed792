"""Messages of the agent contract, of our programs and of third parties."""

from base64 import b64decode, b64encode
from datetime import UTC, datetime

import pytest
from msgspec import structs

from persys.errors import InvalidError, RefusedError
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.placement import Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    Network,
    RestartPolicy,
    Spec,
    VMSpec,
    WorkloadType,
)
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Desired, Order, StoredIntent, Workload
from persys.wire.agent import messages as agent_messages
from persys.wire.gen.agent.v1 import agent_pb2 as pb

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NODE = NodeId("n1")
WEB = WorkloadId("web")
NOTHING = Resources()
COMPOSE_FILE = "services:\n  web:\n    image: nginx\n"


def a_workload(
    spec: Spec, resources: Resources = NOTHING, desired: Desired = Desired.RUNNING
) -> Workload:
    return Workload(WEB, spec, Revision("r1"), NOW, NOW, desired, resources)


def sent(spec: Spec, resources: Resources = NOTHING) -> pb.WorkloadSpec:
    return agent_messages.apply_message(a_workload(spec, resources), 3).spec


def an_order(**fields: object) -> pb.ApplyWorkloadRequest:
    spec = pb.WorkloadSpec(container=pb.ContainerSpec(image="nginx"))
    return pb.ApplyWorkloadRequest(**{"id": "web", "spec": spec, **fields})  # type: ignore[arg-type]  # free by intent


def a_container(**fields: object) -> pb.ApplyWorkloadRequest:
    container = pb.ContainerSpec(**{"image": "nginx", **fields})  # type: ignore[arg-type]  # free by intent
    return an_order(spec=pb.WorkloadSpec(container=container))


def limited(**limits: int) -> pb.ApplyWorkloadRequest:
    return a_container(resources=pb.ResourceLimits(**limits))


def a_stack(compose_yaml: str = "", project_name: str = "") -> pb.ApplyWorkloadRequest:
    compose = pb.ComposeSpec(compose_yaml=compose_yaml, project_name=project_name)
    return an_order(spec=pb.WorkloadSpec(compose=compose))


def seen(actual: pb.ActualState, text: str = "", **metadata: str) -> Observation:
    message = pb.WorkloadStatus(id="web", actual_state=actual, message=text, metadata=metadata)
    return agent_messages.observation(message, NODE, NOW)


def failure_of(text: str = "", **metadata: str) -> Failure:
    failure = seen(pb.ACTUAL_STATE_FAILED, text, **metadata).failure
    assert failure is not None
    return failure


def test_an_order_carries_identity_revision_epoch_and_desired_state() -> None:
    message = agent_messages.apply_message(
        a_workload(ContainerSpec("nginx"), desired=Desired.STOPPED), epoch=3
    )

    assert (message.id, message.revision_id, message.epoch) == ("web", "r1", 3)
    assert message.type == pb.WORKLOAD_TYPE_CONTAINER
    assert message.desired_state == pb.DESIRED_STATE_STOPPED


def test_limits_are_derived_from_the_resources_of_the_workload() -> None:
    limits = sent(ContainerSpec("nginx", pids_max=9), Resources(1500, 64)).container.resources

    assert limits == pb.ResourceLimits(
        cpu_shares=1536, memory_bytes=64 << 20, cpu_millicores=1500, pids_max=9
    )


@pytest.mark.parametrize(
    ("millicores", "shares"), [(0, 0), (1, 2), (1000, 1024), (10_000_000, 262_144)]
)
def test_cpu_shares_stay_within_the_limits_of_docker(millicores: int, shares: int) -> None:
    limits = sent(ContainerSpec("nginx"), Resources(millicores)).container.resources

    assert limits.cpu_shares == shares


def test_a_stack_is_sent_as_base64_with_a_project_name_derived_from_its_id() -> None:
    compose = sent(ComposeSpec(yaml=COMPOSE_FILE)).compose

    assert compose.project_name == "persys-web"
    assert b64decode(compose.compose_yaml).decode() == COMPOSE_FILE


def test_a_stack_from_git_is_sent_with_its_repository() -> None:
    compose = sent(ComposeSpec("git", git_repo="https://example.org/a.git", git_ref="v1")).compose

    assert (compose.git_repo, compose.git_ref) == ("https://example.org/a.git", "v1")
    assert compose.compose_yaml == ""


def test_a_stack_is_sent_with_its_reserved_resources() -> None:
    compose = sent(ComposeSpec(yaml=COMPOSE_FILE), Resources(300, 64, 5)).compose

    assert (compose.cpu_millicores, compose.memory_mb, compose.disk_gb) == (300, 64, 5)


def test_a_vm_is_named_after_its_workload() -> None:
    assert sent(VMSpec(1, 1)).vm.name == "web"


def test_interfaces_get_a_stable_mac_address() -> None:
    spec = VMSpec(
        1, 1, networks=(Network("a"), Network("b"), Network(mac_address="02:00:00:00:00:01"))
    )

    first, second = sent(spec).vm.networks, sent(spec).vm.networks

    assert first == second
    assert first[0].mac_address.startswith("52:54:00:")
    assert first[0].mac_address != first[1].mac_address
    assert first[2].mac_address == "02:00:00:00:00:01"


def test_disks_without_a_device_get_a_free_one() -> None:
    spec = VMSpec(1, 1, disks=(Disk("fast", 5), Disk(device="vda"), Disk(type="cdrom"), Disk("x")))

    disks = sent(spec).vm.disks

    assert [disk.device for disk in disks] == ["vdb", "vda", "sda", "vdc"]
    assert [disk.format for disk in disks] == ["qcow2", "qcow2", "iso", "qcow2"]
    assert [disk.type for disk in disks] == ["disk", "disk", "cdrom", "disk"]


def test_a_vm_with_an_image_and_no_disk_gets_a_boot_disk() -> None:
    spec = VMSpec(1, 1, disks=(Disk(type="cdrom", path="/a.iso"),), os_image="debian-12")

    disks = sent(spec).vm.disks

    assert [(disk.device, disk.type, disk.path) for disk in disks] == [
        ("vda", "disk", ""),
        ("sda", "cdrom", "/a.iso"),
    ]


def test_vm_fields_that_the_agent_contract_lacks_are_sent_as_metadata() -> None:
    spec = VMSpec(
        1,
        1,
        disks=(Disk("fast", 5),),
        networks=(Network("br0"), Network("br1", dhcp=True, ip_address="10.0.0.2")),
        os_image="debian-12",
        metadata={"team": "a"},
    )

    vm = sent(spec).vm

    assert dict(vm.metadata) == {
        "persys.os_image": "debian-12",
        "persys.disk.vda.pool": "fast",
        "persys.network.1.dhcp": "true",
        "team": "a",
    }
    assert vm.disks[0].path == ""
    assert (vm.networks[1].network, vm.networks[1].ip_address) == ("br1", "10.0.0.2")


def test_an_order_of_a_third_party_scheduler_is_accepted() -> None:
    message = pb.ApplyWorkloadRequest(
        id="web",
        type=pb.WORKLOAD_TYPE_CONTAINER,
        revision_id="r9",
        spec=pb.WorkloadSpec(
            container=pb.ContainerSpec(
                image="nginx",
                resources=pb.ResourceLimits(cpu_shares=512, memory_bytes=1 << 29),
                restart_policy=pb.RestartPolicy(policy="unless-stopped", max_retry_count=3),
                labels={"persys.managed": "true"},
            )
        ),
    )

    assert agent_messages.apply(message) == Order(
        workload_id=WEB,
        type=WorkloadType.CONTAINER,
        revision=Revision("r9"),
        epoch=0,
        desired=Desired.RUNNING,
        spec=ContainerSpec(
            "nginx",
            restart=RestartPolicy("unless-stopped"),
            cpu_shares=512,
            memory_bytes=1 << 29,
            labels={"persys.managed": "true"},
        ),
    )


def test_the_type_of_an_order_defaults_to_that_of_its_spec() -> None:
    assert agent_messages.apply(an_order()).type is WorkloadType.CONTAINER


def test_a_retry_count_is_read_only_for_on_failure() -> None:
    policy = pb.RestartPolicy(policy="on-failure", max_retry_count=3)

    spec = agent_messages.apply(a_container(restart_policy=policy)).spec

    assert isinstance(spec, ContainerSpec)
    assert spec.restart == RestartPolicy("on-failure", 3)


def test_a_plain_compose_file_is_accepted() -> None:
    for text in (COMPOSE_FILE, b64encode(COMPOSE_FILE.encode()).decode()):
        spec = agent_messages.apply(a_stack(compose_yaml=text, project_name="my_app")).spec

        assert spec == ComposeSpec(yaml=COMPOSE_FILE, project_name="my_app")


def test_the_largest_stack_that_users_may_send_reaches_the_agent() -> None:
    text = COMPOSE_FILE + "#" * (512 * 1024 - 100)

    spec = agent_messages.apply(
        agent_messages.apply_message(a_workload(ComposeSpec(yaml=text)), 1)
    ).spec

    assert isinstance(spec, ComposeSpec)
    assert spec.yaml == text


WRONG = {
    "an id of two words": (an_order(id="my web"), "id"),
    "no spec": (an_order(spec=None), "spec"),
    "an empty spec": (an_order(spec=pb.WorkloadSpec()), "spec"),
    "an unknown type": (an_order(type=9), "type"),
    "another type than its spec": (an_order(type=pb.WORKLOAD_TYPE_VM), "type"),
    "an unknown desired state": (an_order(desired_state=9), "desired_state"),
    "a negative epoch": (an_order(epoch=-1), "epoch"),
    "a spec too large": (a_container(env={"A": "x" * (2 << 20)}), "spec.container.env['A']"),
    "an empty image": (a_container(image=""), "spec.container.image"),
    "a port too high": (
        a_container(ports=[pb.PortMapping(host_port=65536, container_port=1)]),
        "spec.container.ports[0].host_port",
    ),
    "a relative mount": (
        a_container(volumes=[pb.VolumeMount(host_path="/a", container_path="a")]),
        "spec.container.volumes[0].container_path",
    ),
    "a variable with an equals sign": (a_container(env={"A=": ""}), "spec.container.env['A=']"),
    "an unknown restart policy": (
        a_container(restart_policy=pb.RestartPolicy(policy="maybe")),
        "spec.container.restart_policy.policy",
    ),
    "negative retries": (
        a_container(restart_policy=pb.RestartPolicy(max_retry_count=-1)),
        "spec.container.restart_policy.max_retry_count",
    ),
    "an unknown pull policy": (
        a_container(image_pull_policy="x"),
        "spec.container.image_pull_policy",
    ),
    "a negative stop grace": (
        a_container(stop_grace_seconds=-1),
        "spec.container.stop_grace_seconds",
    ),
    "negative shares": (limited(cpu_shares=-1), "spec.container.resources.cpu_shares"),
    "negative memory": (limited(memory_bytes=-1), "spec.container.resources.memory_bytes"),
    "swap below no limit": (
        limited(memory_swap_bytes=-2),
        "spec.container.resources.memory_swap_bytes",
    ),
    "negative cpu": (limited(cpu_millicores=-1), "spec.container.resources.cpu_millicores"),
    "negative pids": (limited(pids_max=-1), "spec.container.resources.pids_max"),
    "a stack without a source": (a_stack(), "spec.compose"),
    "a stack that is no YAML": (a_stack(compose_yaml="{"), "spec.compose.compose_yaml"),
    "a project of two words": (
        a_stack(compose_yaml=COMPOSE_FILE, project_name="my app"),
        "spec.compose.project_name",
    ),
    "a machine without memory": (
        an_order(spec=pb.WorkloadSpec(vm=pb.VMSpec(vcpus=1))),
        "spec.vm.memory_mb",
    ),
}


@pytest.mark.parametrize(("message", "field"), WRONG.values(), ids=WRONG.keys())
def test_an_invalid_value_is_refused_with_its_field(
    message: pb.ApplyWorkloadRequest, field: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        agent_messages.apply(message)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("state", "actual"),
    [
        (pb.ACTUAL_STATE_UNSPECIFIED, Actual.UNKNOWN),
        (pb.ACTUAL_STATE_PENDING, Actual.PENDING),
        (pb.ACTUAL_STATE_RUNNING, Actual.RUNNING),
        (pb.ACTUAL_STATE_STOPPED, Actual.STOPPED),
        (pb.ACTUAL_STATE_FAILED, Actual.FAILED),
        (pb.ACTUAL_STATE_UNKNOWN, Actual.UNKNOWN),
        (99, Actual.UNKNOWN),
    ],
)
def test_every_state_is_read(state: pb.ActualState, actual: Actual) -> None:
    assert seen(state).actual is actual


@pytest.mark.parametrize(
    ("word", "reason", "retryable"),
    [
        ("IMAGE_PULL_FAILED", FailureReason.IMAGE_PULL_FAILED, True),
        ("IMAGE_NOT_FOUND", FailureReason.IMAGE_NOT_FOUND, False),
        ("INVALID_IMAGE", FailureReason.IMAGE_NOT_FOUND, False),
        ("INVALID_SPECIFICATION", FailureReason.INVALID_SPEC, False),
        ("INVALID_CONFIGURATION", FailureReason.INVALID_SPEC, False),
        ("PORT_BIND_CONFLICT", FailureReason.NETWORK_ERROR, False),
        ("SOLAR_FLARE", FailureReason.RUNTIME_ERROR, True),
        ("", FailureReason.RUNTIME_ERROR, True),
    ],
)
def test_reasons_of_third_party_agents_are_mapped_to_ours(
    word: str, reason: FailureReason, *, retryable: bool
) -> None:
    failure = failure_of(failure_reason=word)

    assert (failure.reason, failure.retryable) == (reason, retryable)


def test_a_terminal_failure_is_not_retried() -> None:
    assert not failure_of(failure_reason="RUNTIME_ERROR", retry_terminal="true").retryable


def test_the_last_error_is_used_instead_of_the_message() -> None:
    assert failure_of("failed", last_error="exit code 3").message == "exit code 3"
    assert failure_of("failed").message == "failed"


def test_a_missing_runtime_has_its_own_code() -> None:
    assert failure_of("Runtime not available: vm").code == "RuntimeNotAvailable"
    assert failure_of("boom", reason_code="CrashLoop").code == "CrashLoop"


def test_a_failed_delete_of_nothing_means_absence() -> None:
    for metadata in ({}, {"last_error": "workload not found"}):
        text = "" if metadata else "workload not found: web"
        found = seen(pb.ACTUAL_STATE_FAILED, text, task_id="delete-7", **metadata)

        assert (found.actual, found.failure) == (Actual.ABSENT, None)


def test_a_failed_apply_that_found_nothing_is_a_failure() -> None:
    found = seen(pb.ACTUAL_STATE_FAILED, "workload not found", task_id="apply-7")

    assert found.actual is Actual.FAILED


def test_a_running_workload_has_no_failure_despite_old_metadata() -> None:
    assert seen(pb.ACTUAL_STATE_RUNNING, failure_reason="RUNTIME_ERROR").failure is None
    assert seen(pb.ACTUAL_STATE_PENDING, failure_reason="RUNTIME_ERROR").failure is not None


def test_a_status_has_its_failure_in_the_metadata_too() -> None:
    failure = Failure(FailureReason.INVALID_SPEC, "no", retryable=False, code="BadPort")
    observation = Observation(
        WEB, NODE, Actual.FAILED, NOW, failure=failure, metadata={"task_id": "apply-1"}
    )

    message = agent_messages.status_message(
        observation, type=WorkloadType.VM, desired=Desired.RUNNING, created_at=NOW
    )

    assert dict(message.metadata) == {
        "task_id": "apply-1",
        "failure_reason": "INVALID_SPEC",
        "last_error": "no",
        "retry_terminal": "true",
        "reason_code": "BadPort",
    }
    assert message.message == "no"
    assert message.created_at == message.updated_at == int(NOW.timestamp())


def test_the_status_of_a_workload_being_deleted_has_no_desired_state() -> None:
    observation = Observation(WEB, NODE, Actual.PENDING, NOW)

    message = agent_messages.status_message(
        observation, type=WorkloadType.CONTAINER, desired=Desired.DELETED
    )

    assert message.desired_state == pb.DESIRED_STATE_UNSPECIFIED


def test_unset_times_are_sent_as_zero() -> None:
    action = Action(ActionId("apply-1"), WEB, ActionKind.APPLY, ActionState.PENDING, NOW)

    message = agent_messages.action_message(action)

    assert (message.started_at, message.ended_at) == (0, 0)
    assert agent_messages.action(message) == action


def test_unset_times_of_a_third_party_agent_are_none() -> None:
    message = pb.AgentAction(
        action_type="delete_workload",
        status="running",
        created_at=1,
        started_at=-62_135_596_800,
        ended_at=-62_135_596_800,
    )

    action = agent_messages.action(message)

    assert (action.started_at, action.ended_at) == (None, None)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.AgentAction(action_type="dance", status="running"), "action_type"),
        (pb.AgentAction(action_type="reconcile", status="dancing"), "status"),
    ],
)
def test_an_action_of_an_unknown_kind_is_refused(message: pb.AgentAction, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        agent_messages.action(message)

    assert refused.value.field == field


def test_an_intent_is_returned_unchanged() -> None:
    workload = a_workload(ContainerSpec("nginx"), Resources(100, 64), Desired.STOPPED)
    kept = agent_messages.apply_message(workload, 7).intent

    found = agent_messages.intent(pb.IntentView(id="web", epoch=7, intent=kept), NODE)

    assert found == StoredIntent(NODE, workload, 7)


def test_an_intent_of_another_workload_is_refused() -> None:
    kept = agent_messages.apply_message(a_workload(ContainerSpec("nginx")), 7).intent

    with pytest.raises(RefusedError, match="stored for mail is an intent of web"):
        agent_messages.intent(pb.IntentView(id="mail", epoch=7, intent=kept), NODE)


def test_stop_after_travels_with_the_order() -> None:
    workload = structs.replace(a_workload(ContainerSpec("nginx")), stop_after_seconds=60)

    assert agent_messages.apply(agent_messages.apply_message(workload, 3)).stop_after_seconds == 60
    with pytest.raises(InvalidError, match="stop_after_seconds"):
        agent_messages.apply(an_order(stop_after_seconds=-1))
