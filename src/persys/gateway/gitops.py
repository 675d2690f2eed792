"""Workloads that follow a branch: a push makes them anew, in every cluster, as operator/webhook.

Each cluster has a queue of its own, so one that cannot be reached keeps its pushes and holds up no other.
What would surprise: a workload that is stopped stays so; a push is no reason to start it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import Any

import grpc
import structlog
from aiohttp import web
from msgspec import Struct

from persys.core.gitops import Push, follows, repository_name
from persys.errors import UnavailableError
from persys.gateway.audit import Audit, Deed
from persys.gateway.cluster import Cluster, Metadata
from persys.gateway.door import Ask, Door, Handler
from persys.gateway.overview import told
from persys.gateway.problems import ProblemError, problem_from, problem_from_rpc, refusal_in
from persys.infra.clock import Clock
from persys.infra.door import PASSED_IDENTITY
from persys.infra.together import together
from persys.model.identity import Identity, Role
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest import API

log = structlog.get_logger()

QUEUED_MAX = 100
TRIES_MAX = 30
RETRY_SECONDS = 2.0
AT_ONCE_MAX = 8
REMEMBERED_MAX = 10_000
WEBHOOK = Identity(Role.OPERATOR, "webhook")
_COMPOSE = "compose"
_STOPPED = "Stopped"
_OK = 200


class Outcome(Struct, frozen=True):
    """What came of the last push that a workload follows."""

    delivery: str
    commit: str
    at: datetime
    status: int  # as HTTP would say it
    detail: str = ""


class Gitops:
    def __init__(self, clusters: Mapping[str, Cluster], clock: Clock, audit: Audit) -> None:
        self._clusters = clusters
        self._clock = clock
        self._audit = audit
        self._queues: dict[str, asyncio.Queue[Push]] = {
            name: asyncio.Queue(QUEUED_MAX) for name in clusters
        }
        self.outcomes: dict[tuple[str, str], Outcome] = {}

    def take(self, push: Push) -> None:
        """Raises ProblemError (503) when every cluster has too many to do already."""
        if all(queue.full() for queue in self._queues.values()):
            raise ProblemError(503, "too many pushes are waiting")
        for name, queue in self._queues.items():
            if queue.full():
                log.error("push.lost", cluster=name, delivery=push.delivery)
            else:
                queue.put_nowait(push)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, queue in self._queues.items():
                group.create_task(self._work(self._clusters[name], queue))

    async def _work(self, cluster: Cluster, queue: asyncio.Queue[Push]) -> None:
        while True:
            push = await queue.get()
            for attempt in range(TRIES_MAX):
                if attempt:
                    await asyncio.sleep(RETRY_SECONDS)
                try:
                    await self._redeploy_all(cluster, push)
                    break
                except (grpc.aio.AioRpcError, UnavailableError) as err:
                    log.warning("push.waits", cluster=cluster.id, reason=str(err))
            else:
                log.error("push.lost", cluster=cluster.id, delivery=push.delivery)

    async def _redeploy_all(self, cluster: Cluster, push: Push) -> None:
        passed = _as_webhook(push.delivery)
        async for view in followers(cluster, passed):
            compose = view.spec.compose
            follow = follows(push, git_repo=compose.git_repo, git_ref=compose.git_ref)
            if not follow or self._is_done(cluster, view.workload_id, push):
                continue
            if view.desired_state == _STOPPED:
                log.info("push.skipped", workload_id=view.workload_id, reason="it is stopped")
                continue
            await self._redeploy(cluster, view.workload_id, push, passed)

    def _is_done(self, cluster: Cluster, workload_id: str, push: Push) -> bool:
        """At an earlier attempt."""
        outcome = self.outcomes.get((cluster.id, workload_id))
        return outcome is not None and outcome.delivery == push.delivery

    async def _redeploy(
        self, cluster: Cluster, workload_id: str, push: Push, passed: Metadata
    ) -> None:
        request = pb.RedeployWorkloadRequest(workload_id=workload_id)
        status, detail = _OK, ""
        try:
            answered = await cluster.call(
                "RedeployWorkload", request, key=workload_id, metadata=passed, again=False
            )
            refusal = refusal_in(answered.answer, mode=answered.mode)
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.UNAVAILABLE:
                raise
            refusal = problem_from_rpc(err)
        if refusal is not None:
            status, detail = refusal.status, refusal.detail
        now = self._clock.now()
        if len(self.outcomes) >= REMEMBERED_MAX:
            self.outcomes.pop(next(iter(self.outcomes)))
        outcome = Outcome(push.delivery, push.commit, now, status, detail)
        self.outcomes[cluster.id, workload_id] = outcome
        await self._audit.note(
            Deed(
                *(now, str(WEBHOOK), "", "RedeployWorkload", cluster.id),
                *(workload_id, status, push.delivery),
            )
        )


async def followers(cluster: Cluster, passed: Metadata) -> AsyncIterator[pb.WorkloadView]:
    """Stacks that come from a repository, with their specs."""
    listed = await _read(cluster, "ListWorkloads", pb.ListWorkloadsRequest(), passed)
    ids = [view.workload_id for view in listed.workloads if view.type == _COMPOSE]
    for start in range(0, len(ids), AT_ONCE_MAX):
        async with together() as group:
            tasks = [
                group.create_task(_view(cluster, name, passed))
                for name in ids[start : start + AT_ONCE_MAX]
            ]
        for task in tasks:
            view = task.result()
            if view is not None and view.spec.compose.git_repo:
                yield view


async def _view(cluster: Cluster, workload_id: str, passed: Metadata) -> pb.WorkloadView | None:
    """None: it is gone by now."""
    request = pb.GetWorkloadRequest(workload_id=workload_id)
    try:
        answer = await _read(cluster, "GetWorkload", request, passed)
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    view: pb.WorkloadView = answer.workload
    return view


async def _read(cluster: Cluster, rpc: str, request: Any, passed: Metadata) -> Any:
    answered = await cluster.call(rpc, request, key="", metadata=passed, again=True)
    return answered.answer


def _as_webhook(delivery: str) -> Metadata:
    return ((PASSED_IDENTITY, str(WEBHOOK)), ("x-request-id", delivery))


def gitops_routes(door: Door, gitops: Gitops) -> Iterator[web.RouteDef]:
    yield web.get(f"{API}/gitops", door.behind(_listing(gitops)))


def _listing(gitops: Gitops) -> Handler:
    async def handle(ask: Ask) -> web.StreamResponse:
        ask.who.need("ListWorkloads")
        wanted = [ask.cluster] if _is_named(ask) else list(ask.clusters.values())
        found: list[dict[str, Any]] = []
        problems: list[dict[str, Any]] = []
        for cluster in wanted:
            try:
                async for view in followers(cluster, ask.metadata):
                    outcome = gitops.outcomes.get((cluster.id, view.workload_id))
                    found.append(_shown(cluster, view, outcome))
            except UnavailableError as err:
                problem = problem_from(err)
            except grpc.aio.AioRpcError as err:
                problem = problem_from_rpc(err)
            else:
                continue
            if len(wanted) == 1:
                raise problem
            problems.append({"cluster": cluster.id, **problem.plain(ask.id)})
        return told(ask, {"workloads": found, "problems": problems})

    return handle


def _is_named(ask: Ask) -> bool:
    return ask.cluster_id != ask.default_cluster or "cluster_id" in ask.request.query


def _shown(cluster: Cluster, view: pb.WorkloadView, outcome: Outcome | None) -> dict[str, Any]:
    compose = view.spec.compose
    shown = {
        "cluster": cluster.id,
        "workload_id": view.workload_id,
        "repository": repository_name(compose.git_repo),
        "branch": compose.git_ref,
        "commit": view.metadata.get("compose.commit", ""),
        "status": view.status,
    }
    return shown | ({"last_delivery": outcome} if outcome is not None else {})
