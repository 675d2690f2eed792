"""Field limits of both contracts: the table is complete, requests are refused, reports are trimmed."""

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from persys.errors import InvalidError
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.limits import check as limits_check
from persys.wire.limits.table import COUNTS, ESSENTIAL, MAPS


@pytest.mark.parametrize("message", limits_check.messages(), ids=lambda message: message.full_name)
def test_every_field_has_a_limit(message: Descriptor) -> None:
    assert not limits_check.fields_without_limit(message), "add them to wire/limits/table.py"


def test_every_essential_field_exists() -> None:
    known = {f"{one.name}.{field.name}" for one in limits_check.messages() for field in one.fields}

    assert known >= ESSENTIAL


def an_apply(container: pb.ContainerSpec) -> pb.ApplyWorkloadRequest:
    spec = pb.WorkloadSpec(type="container", container=container)
    return pb.ApplyWorkloadRequest(workload_id="web", spec=spec)


def test_an_ordinary_request_passes() -> None:
    limits_check.check(an_apply(pb.ContainerSpec(image="nginx", env={"A": "b"}, command=["x"])))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            an_apply(pb.ContainerSpec(env={str(number): "" for number in range(5000)})),
            "spec.container.env: has 5000 entries; expected at most 1000",
        ),
        (
            an_apply(pb.ContainerSpec(env={"A": "x" * 200_000})),
            "spec.container.env['A']: is 200000 characters long; expected at most 131072",
        ),
        (
            an_apply(pb.ContainerSpec(volumes=[pb.VolumeMount(host_path="/" + "a" * 5000)])),
            "spec.container.volumes[0].host_path: is 5001 characters long; expected at most 4096",
        ),
        (
            an_apply(pb.ContainerSpec(ports=[pb.Port(host_port=70_000)])),
            "spec.container.ports[0].host_port: is 70000; expected 0 to 65535",
        ),
        (
            an_apply(pb.ContainerSpec(command=["a", "b\0c"])),
            "spec.container.command[1]: must not contain NUL characters",
        ),
        (
            agent_pb2.ApplyWorkloadRequest(id="web", epoch=2**63 - 1),
            f"epoch: is {2**63 - 1}; expected 0 to {2**53}",
        ),
    ],
    ids=["count", "map value", "path", "port", "NUL", "epoch"],
)
def test_a_request_is_refused_by_the_path_of_its_field(message: Message, text: str) -> None:
    with pytest.raises(InvalidError) as refused:
        limits_check.check(message)

    assert str(refused.value) == text


def test_a_time_out_of_range_is_refused() -> None:
    request = pb.LogsRequest()
    request.since.seconds = 2**62

    with pytest.raises(InvalidError, match="since"):
        limits_check.check(request)


def test_texts_of_a_report_are_truncated_and_entries_stay() -> None:
    status = pb.WorkloadStatus(workload_id="web", message="a\0" + "x" * 10_000)
    status.reason.code = "C" * 5_000
    status.revision_id = "r" * 5_000
    heartbeat = pb.HeartbeatRequest(node_id="n1", workload_statuses=[status])

    trimmed = limits_check.trim(heartbeat)

    kept = heartbeat.workload_statuses[0]
    assert (len(kept.message), len(kept.reason.code), len(kept.revision_id)) == (4096, 128, 253)
    assert "\0" not in kept.message
    assert trimmed.fields() == {
        "WorkloadStatus.message": 1,
        "ReasonDetail.code": 1,
        "WorkloadStatus.revision_id": 1,
    }


@pytest.mark.parametrize("epoch", [-1, 2**53 + 1, 2**63 - 1])
def test_a_status_with_an_impossible_epoch_is_dropped(epoch: int) -> None:
    heartbeat = pb.HeartbeatRequest(
        node_id="n1",
        workload_statuses=[
            pb.WorkloadStatus(workload_id="a", epoch=3),
            pb.WorkloadStatus(workload_id="b", epoch=epoch),
        ],
    )

    trimmed = limits_check.trim(heartbeat)

    assert [one.workload_id for one in heartbeat.workload_statuses] == ["a"]
    assert trimmed.dropped == {"HeartbeatRequest.workload_statuses": 1}


def test_entries_above_the_limit_are_dropped_from_a_report() -> None:
    most = COUNTS["internal_errors"]
    heartbeat = pb.HeartbeatRequest(
        node_id="n1", internal_errors=[pb.InternalError(text=str(one)) for one in range(most + 9)]
    )

    trimmed = limits_check.trim(heartbeat)

    assert [one.text for one in heartbeat.internal_errors] == [str(one) for one in range(most)]
    assert trimmed.dropped == {"HeartbeatRequest.internal_errors": 9}


def test_a_map_of_a_report_keeps_its_first_entries_with_truncated_values() -> None:
    most = MAPS["WorkloadStatus.metadata"][2]
    metadata = {f"key-{number:04}": "x" * 9_999 for number in range(most + 5)} | {"k" * 9_999: ""}
    heartbeat = pb.HeartbeatRequest(
        workload_statuses=[pb.WorkloadStatus(workload_id="web", metadata=metadata)]
    )

    limits_check.trim(heartbeat)

    kept = heartbeat.workload_statuses[0].metadata
    assert set(kept) == {f"key-{number:04}" for number in range(most)}
    assert {len(value) for value in kept.values()} == {4096}


def test_numbers_of_a_report_are_clamped() -> None:
    heartbeat = pb.HeartbeatRequest(
        usage=pb.NodeUsage(cpu_used_millicores=-5),
        workload_usage=[
            pb.WorkloadUsageSnapshot(workload_id="web", cpu_percent=float("nan")),
            pb.WorkloadUsageSnapshot(workload_id="db", cpu_percent=float("inf")),
        ],
    )
    heartbeat.timestamp.seconds = 2**62

    limits_check.trim(heartbeat)

    assert heartbeat.usage.cpu_used_millicores == 0
    assert [used.cpu_percent for used in heartbeat.workload_usage] == [0.0, 0.0]
    assert not heartbeat.HasField("timestamp")


def test_a_report_without_a_valid_sender_is_refused() -> None:
    with pytest.raises(InvalidError, match="node_id"):
        limits_check.trim(pb.HeartbeatRequest(node_id="n" * 5_000))


def extremes(message: Message, *, large: bool) -> None:
    """Fill every field with values beyond its limit, or with the extremes of its type."""
    for field in message.DESCRIPTOR.fields:
        value = _extreme(field, large=large)
        if field.type == field.TYPE_MESSAGE:
            _fill(message, field, large=large)
        elif field.is_repeated:
            getattr(message, field.name).extend([value] * (2 if large else 1))
        else:
            setattr(message, field.name, value)


def _fill(message: Message, field: Any, *, large: bool) -> None:
    kind = field.message_type
    assert kind is not None
    if kind.GetOptions().map_entry:
        entries = getattr(message, field.name)
        entries.update({f"k{number}": "\0" for number in range(1_500 if large else 1)})
    elif field.is_repeated:
        extremes(getattr(message, field.name).add(), large=large)
    elif kind.full_name == "google.protobuf.Timestamp":
        getattr(message, field.name).seconds = 2**63 - 1
    elif field.containing_oneof is None:
        extremes(getattr(message, field.name), large=large)


def _extreme(field: Any, *, large: bool) -> object:
    match field.type:
        case field.TYPE_STRING:
            return "\N{SNOWMAN}\0" * (5_000 if large else 1)
        case field.TYPE_BYTES:
            return b"\xff" * (9_000_000 if large else 1)
        case field.TYPE_DOUBLE:
            return float("inf") if large else float("nan")
        case field.TYPE_INT32:
            return 2**31 - 1 if large else -(2**31)
        case field.TYPE_INT64:
            return 2**63 - 1 if large else -(2**63)
        case field.TYPE_UINT64:
            return 2**64 - 1
        case _:
            return True if field.type == field.TYPE_BOOL else 1


REPORTED = [
    pb.HeartbeatRequest,
    pb.RegisterNodeRequest,
    agent_pb2.ApplyWorkloadResponse,
    agent_pb2.GetWorkloadStatusResponse,
    agent_pb2.ListWorkloadsResponse,
    agent_pb2.ListActionsResponse,
    agent_pb2.HealthCheckResponse,
    agent_pb2.ListImagesResponse,
    agent_pb2.ListVolumesResponse,
    agent_pb2.GarbageCollectResponse,
]


@pytest.mark.parametrize("large", [True, False], ids=["large", "small"])
@pytest.mark.parametrize("kind", REPORTED, ids=lambda kind: kind.DESCRIPTOR.name)
def test_any_report_is_refused_or_within_its_limits_after_trimming(
    kind: type[Message], large: bool
) -> None:
    report = kind()
    extremes(report, large=large)

    try:
        limits_check.trim(report)
    except InvalidError:
        return

    limits_check.check(report)
    assert kind.FromString(report.SerializeToString()) == report
