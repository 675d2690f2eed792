"""Arbitrary heartbeat content, and its injection into the heartbeats of a real agent."""

from random import Random

from persys.wire.gen.control.v1 import control_pb2

STATES = ("Running", "Failed", "Pending", "Unknown", "", "x" * 300)
TEXTS = ("", "ok", "x" * 5_000, "\x00", "\x1b[2J", "workload not found", "../../nodes/n1")
EPOCHS = (0, -1, 2**53 + 1, 2**63 - 1)  # never assigned
LARGER_THAN_A_RECORD = "y" * 1_200_000
NUMBERS = (0, -1, 2**31 - 1, -(2**31))
STATUS_SHARE = 0.3
OVERSIZED_SHARE = 0.7
LARGE_SHARE = 0.25
OVERSIZED = "z" * 10_000


def falsify(report: control_pb2.HeartbeatRequest, random: Random) -> None:
    """Mix false content into a heartbeat. No copy is reported as removed: a node is trusted for that."""
    for status in report.workload_statuses:
        if random.random() < STATUS_SHARE:
            _falsify_status(status, random)
        elif random.random() < OVERSIZED_SHARE:
            _oversize_status(status, random)
    for _ in range(random.randint(0, 3)):
        made_up = report.workload_statuses.add(workload_id=f"made-up-{random.randrange(50)}")
        _falsify_status(made_up, random)
    report.internal_errors.add(
        component=_text(random), where=_text(random), key=_text(random), text=_text(random)
    )
    report.usage.cpu_used_millicores = random.choice(NUMBERS)
    report.usage.memory_used_mb = random.choice(NUMBERS)
    report.unavailable_types.append(random.choice(TEXTS))


def _falsify_status(status: control_pb2.WorkloadStatus, random: Random) -> None:
    status.state = random.choice(STATES)
    status.epoch = random.choice(EPOCHS)
    status.revision_id = random.choice((status.revision_id, _text(random)))
    status.message = _text(random)
    reason = random.choice(control_pb2.FailureReason.keys())
    status.MergeFrom(control_pb2.WorkloadStatus(failure_reason=reason))
    status.reason.code = _text(random)
    status.reason.message = _text(random)
    status.reason.retryable = random.random() < 0.5
    status.metadata[_text(random)[:1_000]] = _text(random)


def _oversize_status(status: control_pb2.WorkloadStatus, random: Random) -> None:
    """The state, the epoch and the revision are true, so the scheduler accepts and stores the rest."""
    status.message = OVERSIZED
    for number in range(random.choice((1, 100))):
        status.metadata[f"{number}-{OVERSIZED}"[: random.choice((10, 1_000))]] = OVERSIZED


def _text(random: Random) -> str:
    if random.random() < LARGE_SHARE / 10:
        return LARGER_THAN_A_RECORD
    return random.choice(TEXTS)
