"""What an agent reports about its workloads: status metadata, notes, usage, pull progress and actions.

The metadata has the keys of the API contract and is bounded, so one workload cannot make a heartbeat too
large to send. Notes are about fields of a spec that are accepted but have no effect. CPU usage needs two
samples, so a workload has no usage before the second one; the usage of a stack is the sum of its containers.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from persys.core.agent.deviations import DRIFT, summary
from persys.core.agent.health import HEALTH, HEALTH_FAILURES, Health
from persys.core.agent.progress import Artefact, Condition
from persys.model.action import Action
from persys.model.ids import WorkloadId
from persys.model.node import WorkloadUsage
from persys.model.spec import ComposeSpec, VMSpec, WorkloadType
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order


def select_actions(
    actions: Iterable[Action],
    *,
    workload_id: str = "",
    kind: str = "",
    state: str = "",
    limit: int = 0,
    newest_first: bool = False,
) -> list[Action]:
    """`actions` come oldest first. Empty filters let all pass; a limit keeps the newest, 0 all."""
    found = [
        action
        for action in actions
        if (not workload_id or action.workload_id == workload_id)
        and (not kind or action.kind == kind.lower())
        and (not state or action.state == state.lower())
    ]
    if limit > 0:
        found = found[-limit:]
    return found[::-1] if newest_first else found


LOG_TAIL_BYTES_MAX = 4096
MESSAGE_LENGTH_MAX = 4096
WORD_LENGTH_MAX = 8192
WORDS_MAX = 64
INTERNAL_ERROR = "InternalError"
ID = "container.id"
STARTED_AT = "container.started_at"
RESTART_COUNT = "container.restart_count"
RUN_STARTED_AT = "run.started_at"  # of a member of a job: its only start
EXIT_CODE = "container.exit_code"
PORTS = "container.ports"  # such as "8080->80/tcp,8081->81/tcp"
PRIMARY_IP = "vm.primary_ip"


def describe(artefact: Artefact | None, *, log_tail: str = "", restarts: int = 0) -> dict[str, str]:
    """`restarts`: since its revision was created, of all its containers."""
    if artefact is None:
        return {}
    words = {
        ID: artefact.id,
        "container.name": artefact.name,
        "container.state": artefact.condition.value,
        "container.image": artefact.image,
        EXIT_CODE: str(artefact.exit_code) if _has_ended(artefact) else "",
        STARTED_AT: _shown(artefact.started_at),
        "container.finished_at": _shown(artefact.finished_at),
        RESTART_COUNT: str(restarts),
        PORTS: ",".join(artefact.ports),
        "container.stderr": tail(log_tail),
        HEALTH: artefact.health.value if artefact.health is not None else "",
        HEALTH_FAILURES: artefact.health_failures,
        DRIFT: summary(artefact.deviations),
    }
    if artefact.boots:
        # These facts of a VM and the tail of its console use the keys of a container.
        shared = (
            "container.exit_code",
            STARTED_AT,
            "container.finished_at",
            RESTART_COUNT,
            "container.stderr",
            HEALTH,
            HEALTH_FAILURES,
        )
        words = {name: words[name] for name in shared} | artefact.facts
    if artefact.managed:
        words = dict(artefact.facts)  # another cluster describes it
    if artefact.parts:
        # A stack has several containers, but its end, log and ports use the keys of a container.
        for name in (ID, "container.name", "container.image", STARTED_AT):
            del words[name]
        words |= {
            "compose.project": artefact.name,
            "compose.services": ",".join(artefact.parts),
            "compose.commit": artefact.commit,
        }
    there = [(name, word) for name, word in words.items() if word]
    return {name: shortened(word, WORD_LENGTH_MAX) for name, word in there[:WORDS_MAX]}


def is_healthy(metadata: Mapping[str, str]) -> bool:
    """Of a running workload: its check passes, or it has none."""
    return metadata.get(HEALTH, Health.HEALTHY) == Health.HEALTHY


def has_restarted(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether it was restarted between two reports. Some agents do not report this."""
    return any(
        key in old and key in new and old[key] != new[key] for key in (RESTART_COUNT, STARTED_AT)
    )


def has_moved(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether clients reach it at another port or address. Some agents do not report this."""
    return any(key in new and old.get(key) != new[key] for key in (PORTS, PRIMARY_IP))


def internal_failure(text: str) -> Failure:
    """An error of the agent itself, so a retry may succeed."""
    return Failure(FailureReason.RUNTIME_ERROR, f"internal error: {text}", code=INTERNAL_ERROR)


def shortened(text: str, length_max: int = MESSAGE_LENGTH_MAX) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def tail(text: str) -> str:
    """The end of a text within the limit of a status, cut between characters."""
    data = text.encode("utf-8", "replace")
    return data[-LOG_TAIL_BYTES_MAX:].decode("utf-8", "ignore")


def _has_ended(artefact: Artefact) -> bool:
    return artefact.finished_at is not None and artefact.condition is not Condition.RUNNING


def _shown(at: datetime | None) -> str:
    return at.isoformat() if at is not None else ""


_NANOS = 10**9


class UsageSample(Struct, frozen=True):
    """One container or VM at one time. All values but memory are counters since its start."""

    workload_id: WorkloadId
    container_id: str
    at: float  # seconds on a monotonic clock
    cpu_nanos: int
    memory_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0


def usage_of(
    before: Mapping[str, UsageSample],
    now: Iterable[UsageSample],
    *,
    types: Mapping[WorkloadId, WorkloadType],
    collected_at: datetime,
    source: str,
) -> dict[WorkloadId, WorkloadUsage]:
    """`before` are the previous samples, by container; `types` are the workloads to include."""
    parts: dict[WorkloadId, list[UsageSample]] = {}
    for sample in now:
        if sample.workload_id in types:
            parts.setdefault(sample.workload_id, []).append(sample)
    return {
        workload_id: WorkloadUsage(
            workload_id=workload_id,
            type=types[workload_id],
            collected_at=collected_at,
            cpu_percent=sum(_cpu_percent(before.get(one.container_id), one) for one in samples),
            memory_bytes=sum(one.memory_bytes for one in samples),
            disk_read_bytes=sum(one.disk_read_bytes for one in samples),
            disk_write_bytes=sum(one.disk_write_bytes for one in samples),
            net_rx_bytes=sum(one.net_rx_bytes for one in samples),
            net_tx_bytes=sum(one.net_tx_bytes for one in samples),
            source=source,
        )
        for workload_id, samples in parts.items()
        if any(one.container_id in before for one in samples)
    }


def _cpu_percent(before: UsageSample | None, now: UsageSample) -> float:
    """Percent of one core. The counter of a restarted container starts at 0."""
    if before is None or now.at <= before.at:
        return 0.0
    used = now.cpu_nanos - before.cpu_nanos
    return 100 * (used if used >= 0 else now.cpu_nanos) / ((now.at - before.at) * _NANOS)


PROJECT_NAME = "COMPOSE_PROJECT_NAME"
NOTE = "note"  # the key in the metadata of a status


def notes_of(order: Order, project: str = "") -> Iterator[str]:
    """`project` is the name that a stack has on its node; "" if it has none yet."""
    match order.spec:
        case VMSpec() as spec:
            if spec.cloud_init_base64 and spec.cloud_init.user_data:
                yield "cloud_init is ignored: cloud_init_config.user_data is set"
        case ComposeSpec() as spec:
            if PROJECT_NAME in spec.env:
                yield f"env {PROJECT_NAME} is ignored: project_name sets the name of the project"
            named = "" if spec.project_derived else spec.project_name
            if project and named and named != project:
                yield (
                    f"project_name {named} is ignored: "
                    f"the stack uses the project {project} until it is deleted"
                )
        case _:
            return


def effective_env(spec: ComposeSpec) -> dict[str, str]:
    """The variables that a stack gets."""
    return {name: value for name, value in spec.env.items() if name != PROJECT_NAME}


LAYERS_MAX = 1_000  # that are tracked; Docker itself allows 127
_MB = 1_000_000
_DOWNLOADING = "Downloading"
_DOWNLOADED = frozenset({"Verifying Checksum", "Download complete", "Extracting"})
_HERE = frozenset({"Pull complete", "Already exists"})
_LAYER = frozenset({"Pulling fs layer", "Waiting", _DOWNLOADING}) | _DOWNLOADED | _HERE


class LayerProgress:
    """Takes the lines of the engine. The size of a layer is known only after its download has begun."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._here: dict[str, bool] = {}
        self._got: dict[str, int] = {}
        self._size: dict[str, int] = {}

    def take(self, line: Mapping[str, Any]) -> None:
        name, word = str(line.get("id", "")), line.get("status", "")
        if not name or word not in _LAYER:
            return
        if name not in self._here and len(self._here) >= LAYERS_MAX:
            return
        self._here[name] = word in _HERE
        detail = line.get("progressDetail") or {}
        if word == _DOWNLOADING and detail.get("total", 0) > 0:
            self._got[name], self._size[name] = int(detail["current"]), int(detail["total"])
        elif word in _DOWNLOADED or word in _HERE:
            self._got[name] = self._size.get(name, 0)

    @property
    def bytes_got(self) -> int:
        return sum(self._got.values())

    def describe(self) -> str:
        """One line for users."""
        text = f"pulling {self._image}"
        if not self._here:
            return text
        text = f"{text}: {sum(self._here.values())} of {len(self._here)} layers"
        size = sum(self._size.values())
        if not size:
            return text
        return f"{text}, {_megabytes(self.bytes_got)} of {_megabytes(size)} MB"


class DownloadProgress(Struct, frozen=True):
    """The download of an image that is a single file."""

    image: str
    bytes_got: int
    size_bytes: int = 0  # 0: not known

    def describe(self) -> str:
        text = f"pulling {self.image}: {_megabytes(self.bytes_got)}"
        return f"{text} of {_megabytes(self.size_bytes)} MB" if self.size_bytes else f"{text} MB"


def _megabytes(count: int) -> str:
    return f"{count / _MB:.0f}" if count >= 10 * _MB else f"{count / _MB:.1f}"
