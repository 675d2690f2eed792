"""One call to an agent: counted, timed and traced, and its failure told in our own words.

Counts are by method and code; which node does not answer is told by a number per node that starts again with
each answer.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

from persys.errors import AgentUnreachableError, PersysError, RefusedError, UnavailableError
from persys.infra import tracing
from persys.infra.clock import Clock
from persys.model.ids import NodeId
from persys.scheduler.metrics import Metrics
from persys.wire import status

SERVICE = "persys.agent.v1.AgentService"
NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Outgoing:
    def __init__(
        self, metrics: Metrics, clock: Clock, *, reached: Callable[[NodeId, str], None]
    ) -> None:
        """`reached` is told which node was called, and why it gave no answer, if it gave none."""
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
        """Yields what the call shall carry, so that the agent's part of the trace is found.

        One that `lasts` as long as somebody likes is counted and not timed.
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
                error = status.error_from(code, err.details())
                if isinstance(error, UnavailableError):
                    raise AgentUnreachableError(f"{code.name}: {err.details()}") from err
                raise error from err
            except PersysError as err:
                code = status.grpc_code(err)
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
        f"the agent of node {node_id} does not know {method}: it is older or of another make"
    )
