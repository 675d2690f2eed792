"""One call to an agent: counted, timed and traced; failures are mapped to PersysError.

Counts are by method and code. A counter per node of calls without a reply is reset by each reply.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

from persys.errors import AgentUnreachableError, PersysError, RefusedError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.telemetry import tracing
from persys.model.ids import NodeId
from persys.scheduler.metrics import Metrics
from persys.wire import errors as wire_errors

SERVICE = "persys.agent.v1.AgentService"
NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Outgoing:
    def __init__(
        self, metrics: Metrics, clock: Clock, *, reached: Callable[[NodeId, str], None]
    ) -> None:
        """`reached` is called with each node that was called and the problem if it did not reply, else ""."""
        self._reached = reached
        self._metrics = metrics
        self._clock = clock
        self._unanswered: dict[NodeId, int] = {}

    def unanswered(self, node_id: NodeId) -> int:
        return self._unanswered.get(node_id, 0)

    def forget(self, node_id: NodeId) -> None:
        self._unanswered.pop(node_id, None)

    @contextmanager
    def call(
        self, node_id: NodeId, method: str, *, lasts: bool = False
    ) -> Iterator[tracing.Headers]:
        """Yields the metadata of the call, which continues the trace in the agent.

        A call that `lasts` (a stream without a deadline) is counted but not timed.
        """
        began = self._clock.monotonic()
        code = grpc.StatusCode.UNKNOWN
        with tracing.calling(f"{SERVICE}/{method}", node_id=node_id) as span:
            try:
                yield span.headers
                code = grpc.StatusCode.OK
            except grpc.aio.AioRpcError as err:
                code = err.code()
                if code is grpc.StatusCode.UNIMPLEMENTED:
                    raise unknown_to(node_id, method) from err
                error = wire_errors.error_from(code, err.details())
                if isinstance(error, UnavailableError):
                    raise AgentUnreachableError(f"{code.name}: {err.details()}") from err
                raise error from err
            except PersysError as err:
                code = wire_errors.grpc_code(err)
                raise
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            finally:
                seconds = self._clock.monotonic() - began
                self._metrics.sent(method, code.name, None if lasts else seconds)
                self._note(node_id, code)
                span.answered(code.name)

    def _note(self, node_id: NodeId, code: grpc.StatusCode) -> None:
        if code in NO_ANSWER:
            self._unanswered[node_id] = self.unanswered(node_id) + 1
            self._reached(node_id, code.name)
        elif code is not grpc.StatusCode.CANCELLED:
            self._unanswered.pop(node_id, None)
            self._reached(node_id, "")


def unknown_to(node_id: NodeId, method: str) -> RefusedError:
    return RefusedError(
        f"the agent of node {node_id} does not support {method}: it is an older version or third-party"
    )
