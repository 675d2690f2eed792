"""Changes of intent by users: parse and check the request, decide in core, commit, reply."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import ceil

from persys.core.federation.scope import check_scope
from persys.core.intent import apply as intent_apply
from persys.core.intent.apply import ApplyRequest
from persys.errors import InvalidError, PersysError
from persys.infra.aio.offload import TimeSlice, Turns, off_loop
from persys.infra.clock import Clock
from persys.model.ids import Revision, WorkloadId, workload_id
from persys.model.secret import Secret
from persys.model.workload import Desired, Workload
from persys.scheduler.reconcile.change_batches import Transition, WorkloadChange
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.secrets.references import check_stored
from persys.wire.control import messages as control_messages
from persys.wire.control.spec_decode import ParsedSpec, holds_yaml, parse_spec
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check
from persys.wire.stored.revision import revision_of

REVISION_LENGTH_MAX = 128


class IntentService:
    def __init__(
        self,
        reconciler: Reconciler,
        clock: Clock,
        *,
        lease: timedelta,
        secrets: Mapping[str, Secret],
    ) -> None:
        self._reconciler = reconciler
        self._clock = clock
        self._lease = lease
        self._secrets = secrets
        self._turns = Turns()

    async def apply(self, request: control_pb2.ApplyWorkloadRequest, *, prefix: str) -> Workload:
        """`prefix`: the only names that the caller may use; "": all."""
        wanted_id = workload_id(request.workload_id)
        return await self._reconciler.submit(wanted_id, await self._transition(request, prefix))

    async def apply_all(
        self, requests: Sequence[control_pb2.ApplyWorkloadRequest], *, prefix: str
    ) -> list[Workload | PersysError]:
        """Apply many workloads in one pass. The result of each, in the same sequence."""
        refused: dict[int, PersysError] = {}
        changes: dict[WorkloadId, WorkloadChange] = {}
        slices = TimeSlice(self._clock, self._turns)
        for index, request in enumerate(requests):
            await slices.between()
            try:
                change = await self._change(request, prefix)
                if change.workload_id in changes:
                    raise InvalidError("workload_id", f"{change.workload_id!r} is repeated")
                changes[change.workload_id] = change
            except PersysError as err:
                refused[index] = err
        results = await self._reconciler.submit_all([*changes.values()])
        return [
            refused[index] if index in refused else results[WorkloadId(request.workload_id)]
            for index, request in enumerate(requests)
        ]

    async def _change(
        self, request: control_pb2.ApplyWorkloadRequest, prefix: str
    ) -> WorkloadChange:
        """One change of a batch. Raises InvalidError."""
        limits_check.check(request)
        return WorkloadChange(
            workload_id(request.workload_id), await self._transition(request, prefix)
        )

    async def _transition(
        self, request: control_pb2.ApplyWorkloadRequest, prefix: str
    ) -> Transition:
        return parse_apply(
            request,
            await parse(request),
            self._clock.now,
            lease=self._lease,
            secrets=self._secrets,
            prefix=prefix,
        )

    async def delete(self, request: control_pb2.DeleteWorkloadRequest) -> None:
        wanted_id, now = workload_id(request.workload_id), self._clock.now
        await self._reconciler.submit(
            wanted_id,
            lambda old: intent_apply.change_desired(old, wanted_id, Desired.DELETED, now=now()),
        )

    async def retry(self, request: control_pb2.RetryWorkloadRequest) -> None:
        wanted_id = workload_id(request.workload_id)
        await self._reconciler.submit(wanted_id, lambda old: intent_apply.retry(old, wanted_id))

    async def redeploy(self, request: control_pb2.RedeployWorkloadRequest) -> Workload:
        wanted_id, now = workload_id(request.workload_id), self._clock.now
        return await self._reconciler.submit(
            wanted_id, lambda old: intent_apply.redeploy(old, wanted_id, now=now())
        )


async def parse(request: control_pb2.ApplyWorkloadRequest) -> ParsedSpec | None:
    """The spec of the request, or None if it has none. YAML is parsed in a thread."""
    if not request.HasField("spec"):
        return None
    if holds_yaml(request.spec):
        return await off_loop(partial(parse_spec, request.spec))
    return parse_spec(request.spec)


def parse_apply(
    request: control_pb2.ApplyWorkloadRequest,
    parsed: ParsedSpec | None,
    now: Callable[[], datetime],
    *,
    lease: timedelta,
    secrets: Mapping[str, Secret],
    prefix: str,
) -> Transition:
    """Build the transition this request asks for; raises if invalid.

    `prefix`: the only names that the caller may use; "": all.
    """
    wanted_id = workload_id(request.workload_id)
    check_stop_after(request.spec.stop_after_seconds, lease)
    desired = control_messages.desired(request.desired_state) if request.desired_state else None
    if parsed is not None:
        apply_request = _apply_request(request, parsed, wanted_id, desired)
        if desired is not Desired.DELETED:
            check_scope(prefix, apply_request.spec, apply_request.rules, apply_request.metadata)
            check_stored(apply_request.spec, secrets)
        return lambda old: intent_apply.apply(old, apply_request, now=now())
    if desired is None:
        raise InvalidError("spec", "is missing: expected a spec, or a desired_state to change")
    return lambda old: intent_apply.change_desired(old, wanted_id, desired, now=now())


def check_stop_after(seconds: int, lease: timedelta) -> None:
    least = ceil(lease.total_seconds())
    if 0 < seconds < least:
        raise InvalidError(
            "spec.stop_after_seconds",
            f"{seconds}: expected 0 for never, or at least {least}: "
            "a node may miss heartbeats for this long and still be ready",
        )


def _apply_request(
    request: control_pb2.ApplyWorkloadRequest,
    parsed: ParsedSpec,
    wanted_id: WorkloadId,
    desired: Desired | None,
) -> ApplyRequest:
    spec, resources, metadata, rules, stop_after_seconds, networks = parsed
    given = request.revision_id
    if len(given) > REVISION_LENGTH_MAX:
        raise InvalidError(
            "revision_id", f"{len(given)} characters: expected at most {REVISION_LENGTH_MAX}"
        )
    revision = (
        Revision(given)
        if given
        else revision_of(
            spec, resources, metadata, stop_after_seconds=stop_after_seconds, networks=networks
        )
    )
    return ApplyRequest(
        wanted_id,
        desired,
        spec,
        resources,
        metadata,
        revision,
        bool(given),
        rules,
        stop_after_seconds,
        networks,
    )
