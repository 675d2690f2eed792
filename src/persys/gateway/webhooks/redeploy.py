"""GitOps: a push redeploys the workloads and sets that follow its branch, in every cluster, as
operator/webhook.

Each cluster has its own worker, so the pushes of an unreachable cluster wait without delaying the others.
A stopped workload stays stopped: a push does not start it. A set gets a new revision of the same template,
so that its rollout updates the members with its gates.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import grpc
import structlog
from aiohttp import web
from google.protobuf.message import Message

from persys.core.backoff import doubled_seconds
from persys.core.intent.gitops import Push, follows, repository_name
from persys.errors import UnavailableError
from persys.gateway.audit import AuditEntry, AuditLog
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline
from persys.gateway.http.problems import problem_from, problem_from_rpc, refusal_in
from persys.gateway.http.responses import json_response
from persys.gateway.upstream.batching import read_many
from persys.gateway.upstream.cluster import Cluster, Metadata
from persys.gateway.webhooks.push_queue import PushOutcome, PushQueue
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import FORWARDED_IDENTITY
from persys.model.identity import Identity, Role
from persys.model.sets import RESTARTED_AT
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.routes import API

log = structlog.get_logger()

RETRY_SECONDS = 2.0
RETRY_SECONDS_MAX = 30.0
WEBHOOK = Identity(Role.OPERATOR, "webhook")
_COMPOSE = "compose"
_STOPPED = "Stopped"
_OK = 200


class PushProcessor:
    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        clock: Clock,
        audit: AuditLog,
        pushes: PushQueue,
        supervisor: Supervisor,
    ) -> None:
        self._supervisor = supervisor
        self._clusters = clusters
        self._clock = clock
        self._audit = audit
        self._pushes = pushes

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for cluster in self._clusters.values():
                group.create_task(self._follow(cluster))

    async def _follow(self, cluster: Cluster) -> None:
        logged, attempts = "", 0
        while True:
            try:
                waiting = await self._pushes.next(cluster.id)
                await self._follow_one(cluster, waiting.push)
                await self._pushes.followed(waiting)
            except (grpc.aio.AioRpcError, UnavailableError) as err:
                reason = _reason(err)
                if reason != logged:
                    log.warning("push.waits", cluster=cluster.id, reason=reason)
                    logged = reason
                pause = doubled_seconds(RETRY_SECONDS, attempts, longest=RETRY_SECONDS_MAX)
                await asyncio.sleep(pause)
                attempts += 1
            else:
                logged, attempts = "", 0

    async def _follow_one(self, cluster: Cluster, push: Push) -> None:
        """Process one push. Raises AioRpcError, UnavailableError: retry. A bug fails this push only."""
        key = f"{cluster.id}/{push.delivery}"
        waits: grpc.aio.AioRpcError | None = None
        with self._supervisor.contain("push", key, failed=lambda _: None):
            try:
                await self._redeploy_all(cluster, push)
            except grpc.aio.AioRpcError as err:
                waits = err
        if waits is not None:
            raise waits

    async def _redeploy_all(self, cluster: Cluster, push: Push) -> None:
        passed = _as_webhook(push.delivery)
        outcomes = await self._pushes.outcomes(cluster.id)
        async for view in git_workloads(cluster, passed):
            compose = view.spec.compose
            follow = follows(push, git_repo=compose.git_repo, git_ref=compose.git_ref)
            last = outcomes.get(view.workload_id)
            if not follow or (last is not None and last.delivery == push.delivery):
                continue  # not affected, or already redeployed by an earlier attempt
            if view.desired_state == _STOPPED:
                log.info("push.skipped", workload_id=view.workload_id, reason="workload is stopped")
                continue
            request = pb.RedeployWorkloadRequest(workload_id=view.workload_id)
            await self._redeploy(
                cluster, view.workload_id, "RedeployWorkload", request, push, passed
            )
        for found in await git_sets(cluster, passed):
            compose, set_id = found.spec.template.compose, found.spec.set_id
            follow = follows(push, git_repo=compose.git_repo, git_ref=compose.git_ref)
            last = outcomes.get(set_id)
            if not follow or (last is not None and last.delivery == push.delivery):
                continue
            if found.desired_state == _STOPPED:
                log.info("push.skipped", set_id=set_id, reason="set is stopped")
                continue
            again = self._with_new_revision(found.spec)
            await self._redeploy(cluster, set_id, "ApplySet", again, push, passed)

    def _with_new_revision(self, spec: pb.SetSpec) -> pb.ApplySetRequest:
        """The same set with a new revision of its template. The number of replicas is not changed."""
        request = pb.ApplySetRequest(set=spec)
        request.set.ClearField("replicas")
        request.set.template.metadata[RESTARTED_AT] = self._clock.now().isoformat()
        return request

    async def _redeploy(
        self,
        cluster: Cluster,
        name: str,
        rpc: str,
        request: Message,
        push: Push,
        passed: Metadata,
    ) -> None:
        status, detail = _OK, ""
        try:
            answered = await cluster.call(rpc, request, key=name, metadata=passed, idempotent=False)
            refusal = refusal_in(answered.answer, mode=answered.mode)
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.UNAVAILABLE:
                raise
            refusal = problem_from_rpc(err)
        if refusal is not None:
            status, detail = refusal.status, refusal.detail
        now = self._clock.now()
        outcome = PushOutcome(push.delivery, push.commit, now, status, detail)
        await self._pushes.record(cluster.id, name, outcome)
        await self._audit.record(
            AuditEntry(
                *(now, str(WEBHOOK), "", rpc, cluster.id),
                *(name, status, push.delivery),
            )
        )


async def git_workloads(cluster: Cluster, passed: Metadata) -> AsyncIterator[pb.WorkloadView]:
    """Compose workloads with a git repository, with their specs. Only its set changes a member."""
    listed = await _read(cluster, "ListWorkloads", pb.ListWorkloadsRequest(), passed)
    ids = [
        view.workload_id
        for view in listed.workloads
        if view.type == _COMPOSE and not view.HasField("membership")
    ]
    many = await read_many(cluster, ids, key="", metadata=passed)
    views = {
        one.workload.workload_id: one.workload for response in many for one in response.answer.found
    }
    for name in ids:
        view = views.get(name) or await _view(cluster, name, passed)
        if view is not None and view.spec.compose.git_repo:
            yield view


async def git_sets(cluster: Cluster, passed: Metadata) -> list[pb.SetView]:
    """Sets of stacks with a git repository. A scheduler of an earlier version has none."""
    try:
        listed = await _read(cluster, "ListSets", pb.ListSetsRequest(), passed)
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.UNIMPLEMENTED:
            return []
        raise
    return [found for found in listed.sets if found.spec.template.compose.git_repo]


async def _view(cluster: Cluster, workload_id: str, passed: Metadata) -> pb.WorkloadView | None:
    """None: the workload was deleted meanwhile."""
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
    answered = await cluster.call(rpc, request, key="", metadata=passed, idempotent=True)
    return answered.answer


def _as_webhook(delivery: str) -> Metadata:
    return ((FORWARDED_IDENTITY, str(WEBHOOK)), ("x-request-id", delivery))


def _reason(err: Exception) -> str:
    if isinstance(err, grpc.aio.AioRpcError):
        return err.details() or err.code().name
    return str(err)


def gitops_routes(pipeline: RequestPipeline, pushes: PushQueue) -> Iterator[web.RouteDef]:
    yield web.get(f"{API}/gitops", pipeline.serve(_listing(pushes)))


def _listing(pushes: PushQueue) -> Handler:
    async def handle(context: RequestContext) -> web.StreamResponse:
        context.caller.need("ListWorkloads")
        wanted = [context.cluster] if _is_named(context) else list(context.clusters.values())
        found: list[dict[str, Any]] = []
        problems: list[dict[str, Any]] = []
        for cluster in wanted:
            outcomes = await pushes.outcomes(cluster.id)
            try:
                async for view in git_workloads(cluster, context.metadata):
                    found.append(_shown(cluster, view, outcomes.get(view.workload_id)))
                for one in await git_sets(cluster, context.metadata):
                    found.append(_shown_set(cluster, one, outcomes.get(one.spec.set_id)))
            except UnavailableError as err:
                problem = problem_from(err)
            except grpc.aio.AioRpcError as err:
                problem = problem_from_rpc(err)
            else:
                continue
            if len(wanted) == 1:
                raise problem
            problems.append({"cluster": cluster.id, **problem.plain(context.id)})
        return json_response(context.request, {"workloads": found, "problems": problems})

    return handle


def _is_named(context: RequestContext) -> bool:
    return context.cluster_id != context.default_cluster or "cluster_id" in context.request.query


def _shown(cluster: Cluster, view: pb.WorkloadView, outcome: PushOutcome | None) -> dict[str, Any]:
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


def _shown_set(cluster: Cluster, view: pb.SetView, outcome: PushOutcome | None) -> dict[str, Any]:
    compose = view.spec.template.compose
    shown = {
        "cluster": cluster.id,
        "workload_id": view.spec.set_id,
        "repository": repository_name(compose.git_repo),
        "branch": compose.git_ref,
        "commit": "",  # of each member
        "status": view.phase,
    }
    return shown | ({"last_delivery": outcome} if outcome is not None else {})
