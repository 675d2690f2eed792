"""Counts healthy containers from the events of Docker, so that no moment is missed."""

import json
import subprocess
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from e2e import containers
from e2e.containers import docker
from e2e.waiting import eventually


class HealthyContainers:
    """The containers of a node that Docker reports as healthy, from the first event to the last.

    Every container must have a health check of Docker. `fewest` is the lowest count since `begin`.
    """

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._lock = threading.Lock()
        self._healthy: set[str] = set()
        self.fewest = 0
        self.started: list[str] = []  # ids of containers that were started
        # Their workload ids and variables.
        self._started: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._probed = threading.Event()
        filters = ("--filter", "type=container", "--filter", f"label=persys.node_id={node_id}")
        self._events = subprocess.Popen(
            ["docker", "events", "--format", "{{json .}}", *filters],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait_until_subscribed()
        with self._lock:
            self._healthy |= set(self._listed())
            self.fewest = len(self._healthy)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._events.terminate()
        self._events.wait(timeout=30)
        self._thread.join(timeout=30)
        assert self._events.stdout is not None
        self._events.stdout.close()

    def count(self) -> int:
        with self._lock:
            return len(self._healthy)

    def started_with(self, variable: str) -> list[str]:
        """The workload ids of containers that were started with this variable."""
        return [
            name
            for container_id in self.started
            for name, found in [self._started.get(container_id, ("", ()))]
            if variable in found
        ]

    def _listed(self) -> list[str]:
        found = json.loads(docker("inspect", *containers.container_ids(self._node_id)))
        return [
            one["Id"] for one in found if one["State"].get("Health", {}).get("Status") == "healthy"
        ]

    def _wait_until_subscribed(self) -> None:
        """Docker sends events from the moment of the subscription: wait for one of our own."""
        probe = containers.container_ids(self._node_id)[0]

        def is_subscribed() -> bool:
            docker("exec", probe, "true")
            return self._probed.is_set()

        eventually(is_subscribed, "events of Docker arrive")

    def _read(self) -> None:
        assert self._events.stdout is not None
        for line in self._events.stdout:
            with suppress(json.JSONDecodeError):
                self._take(json.loads(line))

    def _take(self, event: dict[str, str]) -> None:
        action, container_id = event["Action"], event["id"]
        with self._lock:
            if action.startswith("exec_"):
                self._probed.set()
            elif action == "start":
                self.started.append(container_id)
                for found in containers.inspect([container_id]):
                    self._started[container_id] = found.workload_id, found.env
            elif action == "health_status: healthy":
                self._healthy.add(container_id)
            elif action in ("health_status: unhealthy", "kill", "die", "stop", "destroy"):
                self._healthy.discard(container_id)
                self.fewest = min(self.fewest, len(self._healthy))
