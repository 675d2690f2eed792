"""The RPCs of sets. The sets of callers are parsed and checked here; every error names its field."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from persys.core.federation.cluster_ids import HOME_STOP_AFTER
from persys.core.federation.scope import check_scope
from persys.core.sets.changes import SetChange, Unchanged
from persys.errors import InvalidError
from persys.infra.aio.offload import off_loop
from persys.infra.rpc.authorizer import CALLER
from persys.model.event import EventKind
from persys.model.secret import Secret
from persys.model.sets import SetId, Template
from persys.model.workload import Desired
from persys.scheduler.api.methods import Context, need
from persys.scheduler.auth.prefix_scope import current_prefix
from persys.scheduler.reconcile.intent import check_stop_after
from persys.scheduler.secrets.references import check_stored
from persys.scheduler.sets.set_views import SetViews
from persys.scheduler.sets.sets import SetPatch, Sets
from persys.wire.control import messages as control_messages
from persys.wire.control.sets import (
    every_node_of,
    in_template,
    scale_policy_of,
    template_of,
    update_policy_of,
)
from persys.wire.control.spec_decode import holds_yaml, parse_spec
from persys.wire.gen.control.v1 import control_pb2


class SetRequests:
    def __init__(self, *, lease: timedelta, secrets: Mapping[str, Secret]) -> None:
        self._lease = lease
        self._secrets = secrets

    async def parse(
        self, message: control_pb2.SetSpec, desired_state: str, *, prefix: str
    ) -> SetPatch:
        """`prefix`: the only names that the caller may use; "": all. Raises InvalidError."""
        need(message.set_id, "set.set_id")
        template = None
        if message.HasField("template"):
            template = await self._template(message.template, prefix=prefix)
        if prefix and message.scale.prometheus_url:
            raise InvalidError(
                "set.scale.prometheus_url",
                f"cannot be set with a token that is limited to the prefix {prefix!r}",
            )
        is_given = template is not None
        return SetPatch(
            SetId(message.set_id),
            template,
            message.replicas if message.HasField("replicas") else None,
            every_node_of(message) if is_given or message.every else None,
            update_policy_of(message.update) if is_given or message.HasField("update") else None,
            scale_policy_of(message.scale) if message.HasField("scale") else None,
            _desired(desired_state) if desired_state else None,
        )

    async def _template(self, message: control_pb2.WorkloadSpec, *, prefix: str) -> Template:
        try:
            check_stop_after(message.stop_after_seconds, self._lease)
            if holds_yaml(message):
                parsed = await off_loop(partial(parse_spec, message))
            else:
                parsed = parse_spec(message)
            check_scope(prefix, parsed.spec, parsed.rules, parsed.metadata)
            if HOME_STOP_AFTER in parsed.metadata:
                raise InvalidError(
                    f"spec.metadata[{HOME_STOP_AFTER!r}]",
                    "is not allowed in a template: the scheduler would stop members of a running set",
                )
            check_stored(parsed.spec, self._secrets)
        except InvalidError as err:
            raise in_template(err, "set") from err
        return template_of(parsed)


def in_set(err: InvalidError) -> InvalidError:
    """The error of a field of a set, with its full path in the request."""
    if err.field == "set" or err.field.startswith("set."):
        return err
    return InvalidError(f"set.{err.field}", err.problem)


def _desired(text: str) -> Desired:
    desired = control_messages.desired(text)
    if desired is Desired.DELETED:
        raise InvalidError(
            "desired_state", "use DeleteSet to delete a set: expected Running or Stopped"
        )
    return desired


class SetsApi:
    def __init__(self, requests: SetRequests, sets: Sets, views: SetViews) -> None:
        self._requests = requests
        self._sets = sets
        self._views = views

    async def ApplySet(
        self, request: control_pb2.ApplySetRequest, context: Context
    ) -> control_pb2.SetAnswer:
        try:
            patch = await self._requests.parse(
                request.set, request.desired_state, prefix=current_prefix()
            )
            caller = CALLER.get()
            outcome = await self._sets.apply(
                patch, caller=caller.label if caller is not None else ""
            )
        except InvalidError as err:
            if err.field == "desired_state":
                raise
            raise in_set(err) from err
        return self._answer(outcome, word=_outcome(outcome))

    async def ListSets(
        self, request: control_pb2.ListSetsRequest, context: Context
    ) -> control_pb2.ListSetsResponse:
        return control_pb2.ListSetsResponse(sets=await self._views.summaries())

    async def GetSet(
        self, request: control_pb2.GetSetRequest, context: Context
    ) -> control_pb2.GetSetResponse:
        need(request.set_id, "set_id")
        record = self._sets.get(request.set_id)
        return control_pb2.GetSetResponse(set=await self._views.complete(record))

    async def DeleteSet(
        self, request: control_pb2.SetRequest, context: Context
    ) -> control_pb2.SetAnswer:
        need(request.set_id, "set_id")
        return self._answer(await self._sets.delete(SetId(request.set_id)))

    async def ScaleSet(
        self, request: control_pb2.ScaleSetRequest, context: Context
    ) -> control_pb2.SetAnswer:
        need(request.set_id, "set_id")
        return self._answer(await self._sets.scale(SetId(request.set_id), request.replicas))

    async def PauseRollout(
        self, request: control_pb2.SetRequest, context: Context
    ) -> control_pb2.SetAnswer:
        need(request.set_id, "set_id")
        return self._answer(await self._sets.pause(SetId(request.set_id)))

    async def ResumeRollout(
        self, request: control_pb2.SetRequest, context: Context
    ) -> control_pb2.SetAnswer:
        need(request.set_id, "set_id")
        return self._answer(await self._sets.resume(SetId(request.set_id)))

    async def PromoteRollout(
        self, request: control_pb2.SetRequest, context: Context
    ) -> control_pb2.SetAnswer:
        need(request.set_id, "set_id")
        return self._answer(await self._sets.promote(SetId(request.set_id)))

    async def UndoRollout(
        self, request: control_pb2.UndoRolloutRequest, context: Context
    ) -> control_pb2.SetAnswer:
        need(request.set_id, "set_id")
        return self._answer(await self._sets.undo(SetId(request.set_id), request.revision))

    def _answer(self, outcome: SetChange | Unchanged, *, word: str = "") -> control_pb2.SetAnswer:
        """The record that the change has stored, also if the rollout has continued since."""
        return control_pb2.SetAnswer(
            accepted=True, set=self._views.summary(outcome.record), outcome=word
        )


def _outcome(outcome: SetChange | Unchanged) -> str:
    if isinstance(outcome, Unchanged):
        return "unchanged"
    created = any(event.kind is EventKind.SET_CREATED for event in outcome.events)
    return "created" if created else "updated"
