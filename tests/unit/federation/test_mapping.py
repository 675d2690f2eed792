"""Orders as requests to the remote cluster, and its views as artefacts."""

from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from builders import NOON
from persys.core.agent.admission import NODE_FULL
from persys.core.agent.progress import Condition
from persys.errors import InvalidError, RuntimeUnavailableError
from persys.federation.mapping import (
    HOME_CLUSTER,
    HOME_NODE,
    HOME_REVISION,
    HOME_STOP_AFTER,
    UNPLACEABLE,
    Names,
    apply_request,
    artefact_of,
    check_order,
    refusal,
    requested,
    secret_values,
)
from persys.model.ids import Revision, WorkloadId
from persys.model.placement import NO_RULES, Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    FileMount,
    ManagedVolume,
    Network,
    Spec,
    VMSpec,
    type_of,
)
from persys.model.status import Actual, FailureReason
from persys.model.workload import Desired, Order, Workload
from persys.wire.agent.spec import with_derived_fields
from persys.wire.control.spec_decode import workload_rules, workload_spec
from persys.wire.gen.control.v1 import control_pb2 as pb

HOME = Names("home", "east")
NOTHING = Resources()


def an_order(
    spec: Spec, *, desired: Desired = Desired.RUNNING, secret_env: tuple[str, ...] = ()
) -> Order:
    return Order(
        workload_id=WorkloadId("web"),
        type=type_of(spec),
        revision=Revision("r1"),
        epoch=1,
        desired=desired,
        spec=spec,
        secret_env=secret_env,
    )


def as_ordered(spec: Spec, resources: Resources = NOTHING) -> Spec:
    """The spec in the order that the home cluster sends for it."""
    workload = Workload(WorkloadId("web"), spec, Revision("r1"), NOON, NOON, resources=resources)
    return with_derived_fields(workload)


def a_view(status: str = "Running", *, revision: str = "r1", **fields: object) -> pb.WorkloadView:
    view = pb.WorkloadView(
        workload_id="home--web", status=status, desired_state="Running", assigned_node_id="far1"
    )
    view.spec.metadata[HOME_REVISION] = revision
    view.MergeFrom(pb.WorkloadView(**fields))  # type: ignore[arg-type]  # fields of the message
    return view


@pytest.mark.parametrize(
    "spec",
    [
        ContainerSpec("nginx", env={"A": "1"}),
        ComposeSpec(yaml="services: {web: {image: nginx}}"),
        VMSpec(vcpus=1, memory_mb=512, os_image="debian", networks=(Network("default"),)),
    ],
    ids=["container", "compose", "vm"],
)
def test_the_remote_spec_has_nothing_that_was_derived_from_the_home_id(spec: Spec) -> None:
    request = apply_request(an_order(as_ordered(spec)), HOME)

    decoded, resources, _ = workload_spec(request.spec)
    remote = Workload(
        WorkloadId("home--web"), decoded, Revision("r"), NOON, NOON, resources=resources
    )
    derived = with_derived_fields(remote)
    match derived:
        case ComposeSpec():
            assert derived.project_name == "persys-home--web"
        case VMSpec():
            assert derived.name == "home--web"
            assert derived.networks != as_ordered(spec).networks  # type: ignore[union-attr]
        case _:
            assert decoded == spec


def test_the_remote_cluster_names_the_project_of_a_stack() -> None:
    spec = ComposeSpec(yaml="services: {web: {image: nginx}}", project_name="shop")

    assert not apply_request(an_order(as_ordered(spec)), HOME).spec.compose.project_name


def test_stop_after_is_passed_on_in_thirds() -> None:
    order = replace(an_order(ContainerSpec("nginx")), stop_after_seconds=90)

    spec = apply_request(order, HOME).spec

    assert (spec.stop_after_seconds, spec.metadata[HOME_STOP_AFTER]) == (30, "30")


@pytest.mark.parametrize(("seconds", "refused"), [(0, False), (89, True), (90, False)])
def test_a_short_stop_after_is_refused(seconds: int, refused: bool) -> None:
    order = replace(an_order(ContainerSpec("nginx")), stop_after_seconds=seconds)

    with pytest.raises(InvalidError, match="at least 90") if refused else nullcontext():
        check_order(order, HOME)


def test_names_of_credentials_get_the_prefix_that_the_token_requires() -> None:
    stack = ComposeSpec(
        yaml="services: {web: {image: nginx}}", image_credential="hub", git_credential="forge"
    )
    container = ContainerSpec("nginx", image_credential="hub")

    compose = apply_request(an_order(as_ordered(stack)), HOME).spec.compose
    assert (compose.image_credential, compose.git_credential) == ("home--hub", "home--forge")
    request = apply_request(an_order(container), HOME)
    assert request.spec.container.image_credential == "home--hub"


def test_the_request_names_its_home_and_has_no_rules() -> None:
    request = apply_request(an_order(ContainerSpec("nginx"), desired=Desired.STOPPED), HOME)

    assert request.workload_id == "home--web"
    assert request.desired_state == "Stopped"
    assert dict(request.spec.metadata) == {
        HOME_CLUSTER: "home",
        HOME_NODE: "east",
        HOME_REVISION: "r1",
    }
    assert workload_rules(request.spec) == (NO_RULES, 0)


def test_all_reserved_resources_are_requested() -> None:
    volume = ManagedVolume("data", "/data", size_gb=3)
    resources = Resources(500, 256, 5)
    spec = as_ordered(ContainerSpec("nginx", managed_volumes=(volume,)), resources)

    assert requested(spec) == resources


def test_secret_values_are_only_in_the_secrets_of_the_remote_cluster() -> None:
    spec = ContainerSpec(
        "nginx",
        env={"PASSWORD": "hunter2", "MODE": "fast"},
        files=(FileMount("/key", b"s3cret", 0o400, secret=True), FileMount("/plain", b"text")),
    )
    order = an_order(spec, secret_env=("PASSWORD",))

    request, values = apply_request(order, HOME), secret_values(order, HOME)

    text = request.SerializeToString()
    assert b"hunter2" not in text
    assert b"s3cret" not in text
    assert sorted(values.values()) == [b"hunter2", b"s3cret"]
    references = {request.spec.container.env["PASSWORD"].removeprefix("secret://")}
    references |= {
        file.content.removeprefix("secret://")
        for file in request.spec.container.files
        if file.path == "/key"
    }
    assert references == values.keys()
    assert request.spec.container.env["MODE"] == "fast"
    assert all(name.startswith("home--web.") for name in values)
    workload_spec(request.spec)  # the remote cluster accepts the references


def test_variables_that_differ_in_case_have_different_secrets() -> None:
    order = an_order(ContainerSpec("nginx", env={"a": "1", "A": "2"}), secret_env=("a", "A"))

    assert sorted(secret_values(order, HOME).values()) == [b"1", b"2"]


def test_an_id_that_is_too_long_is_refused() -> None:
    order = an_order(ContainerSpec("nginx"))
    check_order(replace(order, workload_id=WorkloadId("w" * 57)), HOME)

    with pytest.raises(InvalidError, match="1 to 63"):
        check_order(replace(order, workload_id=WorkloadId("w" * 58)), HOME)


def test_ids_of_other_clusters_are_not_ours() -> None:
    assert HOME.local("home--web") == "web"
    assert HOME.local("other--web") is None
    assert HOME.local("home-web") is None


@pytest.mark.parametrize(
    ("status", "actual"),
    [("Running", Actual.RUNNING), ("Pending", Actual.PENDING), ("Failed", Actual.FAILED)],
)
def test_the_state_at_the_revision_of_the_order_is_reported(status: str, actual: Actual) -> None:
    artefact = artefact_of(a_view(status), an_order(ContainerSpec("nginx")))

    assert artefact.managed
    assert artefact.reported is not None
    assert artefact.reported.actual is actual


def test_a_workload_without_a_node_there_is_reported_as_failed() -> None:
    view = a_view("Pending", reason=pb.ReasonDetail(code=UNPLACEABLE, message="full"))

    reported = artefact_of(view, an_order(ContainerSpec("nginx"))).reported

    assert reported is not None
    assert reported.failure is not None
    assert reported.failure.reason is FailureReason.INSUFFICIENT_RESOURCES


@pytest.mark.parametrize(
    ("view", "desired"),
    [
        (a_view(revision="r0"), Desired.RUNNING),
        (a_view(), Desired.STOPPED),
    ],
    ids=["another revision", "another desired state"],
)
def test_another_state_than_ordered_is_not_reported(
    view: pb.WorkloadView, desired: Desired
) -> None:
    artefact = artefact_of(view, an_order(ContainerSpec("nginx"), desired=desired))

    assert artefact.reported is None
    assert artefact.condition is Condition.RUNNING


@pytest.mark.parametrize("status", ["Pending", "Failed", "Running", "Stopped"])
def test_what_the_remote_cluster_may_start_has_to_be_stopped(status: str) -> None:
    order = an_order(ContainerSpec("nginx"), desired=Desired.STOPPED)

    assert artefact_of(a_view(status), order).active


def test_a_stopped_workload_that_should_run_there_is_starting() -> None:
    reported = artefact_of(a_view("Stopped"), an_order(ContainerSpec("nginx"))).reported

    assert reported is not None
    assert reported.actual is Actual.PENDING


def test_a_workload_that_was_stopped_there_has_to_be_started() -> None:
    view = a_view("Stopped")
    view.desired_state = "Stopped"

    assert artefact_of(view, an_order(ContainerSpec("nginx"))).reported is None


def test_an_unknown_state_there_is_unknown_here() -> None:
    with pytest.raises(RuntimeUnavailableError):
        artefact_of(a_view("Unknown"), an_order(ContainerSpec("nginx")))


def test_a_plan_that_would_wait_is_a_full_node() -> None:
    waits = pb.WorkloadPlan(would_wait=True, reason="no node has enough memory")

    new, update = refusal(waits, exists=False), refusal(waits, exists=True)

    assert new is not None
    assert update is not None
    assert (new.code, update.code) == (NODE_FULL, UNPLACEABLE)


def test_a_refused_plan_is_an_invalid_spec() -> None:
    failure = refusal(pb.WorkloadPlan(action="refused", reason="spec.image: empty"), exists=False)

    assert failure is not None
    assert (failure.reason, failure.retryable) == (FailureReason.INVALID_SPEC, False)
