"""Messages of the control contract: reports of agents and requests of users."""

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from persys.errors import InvalidError
from persys.model.ids import NodeId
from persys.model.node import Capabilities, StoragePool
from persys.model.placement import Resources
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Desired
from persys.wire.control import messages as control_messages
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.times import instant, timestamp

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
NODE = NodeId("n1")


def seen(**fields: object) -> Observation:
    message = pb.WorkloadStatus(**{"workload_id": "web", **fields})  # type: ignore[arg-type]  # free by intent
    return control_messages.observation(message, NODE, NOW)


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("", Desired.RUNNING),
        ("Running", Desired.RUNNING),
        ("run", Desired.RUNNING),
        ("START", Desired.RUNNING),
        ("started", Desired.RUNNING),
        ("Stopped", Desired.STOPPED),
        ("stop", Desired.STOPPED),
        ("Deleted", Desired.DELETED),
        ("delete", Desired.DELETED),
    ],
)
def test_desired_states_are_read_in_any_spelling(word: str, wanted: Desired) -> None:
    assert control_messages.desired(word) is wanted


def test_an_unknown_desired_state_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidError, match="'paused' is unknown; expected running") as refused:
        control_messages.desired("paused")

    assert refused.value.field == "desired_state"


def test_desired_states_are_shown_in_title_case() -> None:
    assert [control_messages.desired_word(wanted) for wanted in Desired] == [
        "Running",
        "Stopped",
        "Deleted",
    ]


@pytest.mark.parametrize(
    ("word", "actual"),
    [
        ("Running", Actual.RUNNING),
        ("STOPPED", Actual.STOPPED),
        ("Failed", Actual.FAILED),
        ("pending", Actual.PENDING),
        ("Unknown", Actual.UNKNOWN),
        ("Hibernating", Actual.UNKNOWN),
        ("", Actual.UNKNOWN),
    ],
)
def test_an_unrecognised_state_is_unknown(word: str, actual: Actual) -> None:
    assert seen(state=word).actual is actual


def test_revision_epoch_and_metadata_come_from_the_additions() -> None:
    found = seen(state="Running", revision_id="r1", epoch=7, metadata={"container.id": "c"})

    assert (found.revision, found.epoch, found.metadata) == ("r1", 7, {"container.id": "c"})


def test_a_failure_without_detail_is_as_retryable_as_its_reason() -> None:
    found = seen(state="Failed", failure_reason=pb.IMAGE_NOT_FOUND, message="no such image")

    assert found.failure == Failure(FailureReason.IMAGE_NOT_FOUND, "no such image", retryable=False)


def test_the_detail_of_a_failure_decides_whether_it_is_retryable() -> None:
    found = seen(
        state="Failed",
        failure_reason=pb.RUNTIME_ERROR,
        message="exited 1",
        reason=pb.ReasonDetail(code="CrashLoop", retryable=False),
    )

    assert found.failure == Failure(
        FailureReason.RUNTIME_ERROR, "exited 1", retryable=False, code="CrashLoop"
    )


def test_a_failure_without_a_reason_is_a_runtime_error() -> None:
    assert seen(state="Failed", message="?").failure == Failure(FailureReason.RUNTIME_ERROR, "?")


def test_an_unknown_reason_of_a_newer_agent_is_a_runtime_error() -> None:
    message = pb.WorkloadStatus.FromString(
        pb.WorkloadStatus(workload_id="web", state="Failed").SerializeToString() + b"\x18\x65"
    )

    failure = control_messages.observation(message, NODE, NOW).failure

    assert failure is not None
    assert failure.reason is FailureReason.RUNTIME_ERROR


def test_a_running_workload_has_no_failure() -> None:
    assert seen(state="Running").failure is None


def test_a_status_is_sent_in_title_case_with_its_failure_details() -> None:
    failure = Failure(FailureReason.NETWORK_ERROR, "port 80 is taken", code="PortTaken")
    sent = control_messages.status_message(
        Observation(seen().workload_id, NODE, Actual.FAILED, NOW, failure=failure)
    )

    assert (sent.state, sent.failure_reason) == ("Failed", pb.NETWORK_ERROR)
    assert sent.message == "port 80 is taken"
    assert (sent.reason.code, sent.reason.retryable) == ("PortTaken", True)
    assert sent.last_transition.ToDatetime(UTC) == NOW


def test_capabilities_are_read_with_features_and_reserve() -> None:
    message = pb.NodeCapabilities(
        cpu_total_millicores=4000,
        memory_total_mb=8192,
        storage_pools=[pb.StoragePool(name="fast", total_gb=100)],
        supported_workload_types=["Container", "vm", "unikernel"],
        supported_storage_drivers=["local"],
        reserved_cpu_millicores=100,
        reserved_memory_mb=512,
    )

    assert control_messages.capabilities(message, ["push-status"]) == Capabilities(
        cpu_millicores=4000,
        memory_mb=8192,
        pools=(StoragePool("fast", "local", 100),),
        types=frozenset({WorkloadType.CONTAINER, WorkloadType.VM}),
        storage_drivers=frozenset({"local"}),
        reserved=Resources(100, 512),
        features=frozenset({"push-status"}),
    )


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.NodeCapabilities(cpu_total_millicores=-1), "capabilities.cpu_total_millicores"),
        (pb.NodeCapabilities(memory_total_mb=-1), "capabilities.memory_total_mb"),
        (pb.NodeCapabilities(reserved_memory_mb=-1), "capabilities.reserved_memory_mb"),
        (
            pb.NodeCapabilities(storage_pools=[pb.StoragePool(name="a", total_gb=-1)]),
            "capabilities.storage_pools[0].total_gb",
        ),
        (
            pb.NodeCapabilities(storage_pools=[pb.StoragePool()]),
            "capabilities.storage_pools[0].name",
        ),
    ],
)
def test_a_node_with_impossible_amounts_is_refused(
    message: pb.NodeCapabilities, field: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        control_messages.capabilities(message, [])

    assert refused.value.field == field


@pytest.mark.parametrize("seconds", [0, -62_135_596_800, 1 << 60])
def test_a_time_that_was_never_set_is_none(seconds: int) -> None:
    assert instant(Timestamp(seconds=seconds)) is None


def test_a_time_keeps_its_microseconds() -> None:
    before_the_epoch = datetime(1969, 12, 31, tzinfo=UTC) + timedelta(microseconds=1)

    assert instant(timestamp(NOW)) == NOW
    assert instant(timestamp(before_the_epoch)) == before_the_epoch
