"""Orders of the home cluster as requests to the remote cluster, and its views as artefacts.

A remote workload has the id of the home workload with a prefix, which the token of the remote cluster is
limited to. Its metadata has the revision of the order, because the remote cluster computes its own.

Secret values are stored as secrets of the remote cluster. Its intent has only references to them.
"""

from datetime import timedelta
from hashlib import sha256

from msgspec.structs import replace

from persys.core.agent.admission import NODE_FULL, demand_of
from persys.core.agent.next_step import COMPLETED
from persys.core.agent.progress import Artefact, Condition, Settled
from persys.core.federation.cluster_ids import HOME_CLUSTER as HOME_CLUSTER
from persys.core.federation.cluster_ids import HOME_STOP_AFTER as HOME_STOP_AFTER
from persys.core.federation.cluster_ids import prefix_of
from persys.errors import InvalidError, RuntimeUnavailableError
from persys.model.ids import WORKLOAD_ID_RULE, Revision, WorkloadId, workload_id
from persys.model.placement import OFFLOADED_STOP_AFTER_SECONDS_MIN, Resources
from persys.model.secret import SCHEME
from persys.model.spec import ComposeSpec, ContainerSpec, FileMount, Spec, VMSpec
from persys.model.status import Actual, Failure, FailureReason, Status
from persys.model.workload import Desired, Order
from persys.wire.agent.spec import derived_mac
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2 as pb

HOME_REVISION = "persys.home_revision"
HOME_NODE = "persys.home_node"  # several nodes of one home cluster may use the same remote cluster
# The time of `stop_after` is divided: this process stops the workload after a third without contact to the
# home cluster, the remote leader after a third without contact to this process, and the remote agent after a
# third without contact to its leader.
STOP_AFTER_PARTS = 3
UNPLACEABLE = "Unplaceable"
PROGRESS_AFTER = timedelta(seconds=2)  # the progress of a pull is not an event

_DESIRED = {Desired.RUNNING: "Running", Desired.STOPPED: "Stopped"}
_REASONS: dict[str, FailureReason] = {reason.value: reason for reason in FailureReason}
_NODE_DIGEST_LENGTH, _FIELD_DIGEST_LENGTH = 8, 16


class Names:
    """The ids of the workloads and secrets of one federated node in the remote cluster."""

    def __init__(self, home: str, node: str) -> None:
        self.home = home
        self.node = node
        self.prefix = prefix_of(home)

    def named(self, name: str) -> str:
        """The name of a machine or a credential on the nodes of the remote cluster."""
        return f"{self.prefix}{name}" if name else ""

    def remote(self, workload_id: WorkloadId) -> str:
        return f"{self.prefix}{workload_id}"

    def local(self, remote_id: str) -> WorkloadId | None:
        """None: it does not belong to this home cluster."""
        if not remote_id.startswith(self.prefix):
            return None
        return WorkloadId(remote_id.removeprefix(self.prefix))

    def secret(self, workload_id: WorkloadId, field: str) -> str:
        """The name of a secret. Names are in lower case, fields are not."""
        return f"{self.secret_prefix(workload_id)}{_digest(field, _FIELD_DIGEST_LENGTH)}"

    def secret_prefix(self, workload_id: WorkloadId) -> str:
        return f"{self.remote(workload_id)}.{_digest(self.node, _NODE_DIGEST_LENGTH)}"


def _digest(text: str, length: int) -> str:
    return sha256(text.encode()).hexdigest()[:length]


def check_order(order: Order, names: Names) -> None:
    """Raises InvalidError for an order that no remote cluster can carry out."""
    remote_id = names.remote(order.workload_id)
    try:
        workload_id(remote_id)
    except InvalidError as err:
        raise InvalidError(
            "workload_id", f"is {remote_id!r} in the remote cluster: expected {WORKLOAD_ID_RULE}"
        ) from err
    if 0 < order.stop_after_seconds < OFFLOADED_STOP_AFTER_SECONDS_MIN:
        raise InvalidError(
            "spec.stop_after_seconds",
            f"invalid time {order.stop_after_seconds}: expected at least "
            f"{OFFLOADED_STOP_AFTER_SECONDS_MIN} in a federated cluster, or 0 (never)",
        )


def apply_request(order: Order, names: Names) -> pb.ApplyWorkloadRequest:
    """Without rules: what has arrived by federation is not offloaded again."""
    spec = _with_remote_names(_with_references(order, names), order.workload_id, names)
    metadata = {HOME_CLUSTER: names.home, HOME_NODE: names.node, HOME_REVISION: order.revision}
    third = order.stop_after_seconds // STOP_AFTER_PARTS
    if third:
        metadata[HOME_STOP_AFTER] = str(third)
    return pb.ApplyWorkloadRequest(
        workload_id=names.remote(order.workload_id),
        spec=spec_message(spec, requested(order.spec), metadata, stop_after_seconds=third),
        desired_state=_DESIRED[order.desired],
    )


def plan_request(order: Order, names: Names) -> pb.ApplyWorkloadRequest:
    """Only for a plan: without secrets, which are stored when the order is carried out."""
    spec = order.spec
    if isinstance(spec, ContainerSpec | ComposeSpec):
        secret = frozenset(order.secret_env)
        spec = replace(spec, env={key: spec.env[key] for key in spec.env if key not in secret})
    if isinstance(spec, ContainerSpec):
        spec = replace(spec, files=tuple(file for file in spec.files if not file.secret))
    return apply_request(replace(order, spec=spec), names)


def keeping_data(order: Order) -> Order:
    """The order with which a workload is stopped so that its deletion keeps its volumes."""
    spec = order.spec
    if isinstance(spec, ContainerSpec | VMSpec):
        volumes = tuple(replace(volume, retain=True) for volume in spec.managed_volumes)
        spec = replace(spec, managed_volumes=volumes)
    else:
        spec = replace(spec, delete_volumes=False)
    return replace(order, spec=spec, desired=Desired.STOPPED)


def requested(spec: Spec) -> Resources:
    """The resources that the home cluster has reserved for it."""
    demand = demand_of(spec)
    if isinstance(spec, ContainerSpec):
        return replace(demand, disk_gb=demand.disk_gb + spec.disk_gb)
    return demand


def secret_values(order: Order, names: Names) -> dict[str, bytes]:
    """The values of the secrets of an order, by their name in the remote cluster."""
    found: dict[str, bytes] = {}
    if isinstance(order.spec, ContainerSpec | ComposeSpec):
        for variable in order.secret_env:
            if value := order.spec.env.get(variable, ""):
                found[names.secret(order.workload_id, _env_field(variable))] = value.encode()
    if isinstance(order.spec, ContainerSpec):
        for file in order.spec.files:
            if file.secret:
                found[names.secret(order.workload_id, _file_field(file))] = file.content
    return found


def _with_references(order: Order, names: Names) -> Spec:
    """The spec with a reference in place of each secret value."""
    spec = order.spec
    if not isinstance(spec, ContainerSpec | ComposeSpec):
        return spec

    def reference(field: str) -> str:
        return f"{SCHEME}{names.secret(order.workload_id, field)}"

    secret_env = [variable for variable in order.secret_env if spec.env.get(variable)]
    env = {**spec.env, **{variable: reference(_env_field(variable)) for variable in secret_env}}
    if isinstance(spec, ComposeSpec):
        return replace(spec, env=env)
    files = tuple(
        replace(file, content=reference(_file_field(file)).encode(), secret=False)
        if file.secret
        else file
        for file in spec.files
    )
    return replace(spec, env=env, files=files)


def _env_field(variable: str) -> str:
    return f"env {variable}"


def _file_field(file: FileMount) -> str:
    return f"file {file.path}"


def _with_remote_names(spec: Spec, home_id: WorkloadId, names: Names) -> Spec:
    """Without what the home cluster derived from the id: the remote cluster derives it from its own id.

    Names of Compose projects are derived there as well, because they are unique per node. The token of the
    remote cluster does not allow machines, and credentials of its nodes, without the prefix.
    """
    match spec:
        case ContainerSpec():
            return replace(spec, image_credential=names.named(spec.image_credential))
        case ComposeSpec():
            return replace(
                spec,
                project_name="",
                project_derived=False,
                image_credential=names.named(spec.image_credential),
                git_credential=names.named(spec.git_credential),
            )
        case VMSpec():
            networks = tuple(
                replace(network, mac_address="")
                if network.mac_address == derived_mac(home_id, index)
                else network
                for index, network in enumerate(spec.networks)
            )
            name = "" if spec.name == home_id else names.named(spec.name)
            return replace(spec, name=name, networks=networks)


def artefact_of(view: pb.WorkloadView, order: Order) -> Artefact:
    """Raises RuntimeUnavailableError if the remote cluster does not know its state."""
    if view.status == Status.UNKNOWN:
        raise RuntimeUnavailableError(f"{view.workload_id}: {view.reason.message or 'unknown'}")
    revision = _revision(view)
    seen = Artefact(
        id=view.workload_id,
        name=view.workload_id,
        condition=_condition(view),
        revision=revision,
        facts=_facts(view),
        managed=True,
    )
    if order.desired is not Desired.RUNNING or not has_goal(view, order):
        return seen
    reported = _reported(view)
    after = PROGRESS_AFTER if reported.actual is Actual.PENDING else None
    return replace(seen, reported=reported, look_again_after=after)


def has_goal(view: pb.WorkloadView, order: Order) -> bool:
    """Whether the remote cluster has the revision and the desired state of the order."""
    return has_revision(view, order) and view.desired_state == _DESIRED.get(order.desired)


def refusal(plan: pb.WorkloadPlan, *, exists: bool) -> Failure | None:
    """Why the remote cluster would not run it now. `exists`: it has another revision of it."""
    if plan.action == "refused":
        return Failure(FailureReason.INVALID_SPEC, plan.reason, retryable=False)
    if plan.would_wait:
        # The home cluster places a workload elsewhere only if no copy of it is here.
        code = UNPLACEABLE if exists else NODE_FULL
        return Failure(FailureReason.INSUFFICIENT_RESOURCES, plan.reason, code=code)
    return None


def other_owner(view: pb.WorkloadView, names: Names) -> str:
    """The node of the home cluster that a copy belongs to, if it is not this one."""
    owner = view.spec.metadata.get(HOME_NODE, names.node)
    return owner if owner != names.node else ""


def has_revision(view: pb.WorkloadView, order: Order) -> bool:
    return _revision(view) == order.revision


def _revision(view: pb.WorkloadView) -> Revision:
    return Revision(view.spec.metadata.get(HOME_REVISION, ""))


def is_waiting(view: pb.WorkloadView) -> bool:
    """Whether the remote cluster has no node for it."""
    return view.status == Status.PENDING and view.reason.code == UNPLACEABLE


def is_placed(view: pb.WorkloadView) -> bool:
    return bool(view.assigned_node_id) or view.status not in (Status.PENDING, "")


def _condition(view: pb.WorkloadView) -> Condition:
    """A workload that the remote cluster may start counts as running: it has to be stopped."""
    if view.status == Status.DELETING:
        return Condition.REMOVING
    if view.status == Status.RUNNING or view.desired_state == _DESIRED[Desired.RUNNING]:
        return Condition.RUNNING
    return Condition.EXITED


def _reported(view: pb.WorkloadView) -> Settled:
    """The state of a workload that should run, as the remote cluster reports it."""
    code, message = view.reason.code, view.reason.message
    match view.status:
        case Status.RUNNING:
            return Settled(Actual.RUNNING, code=code, message=message)
        case Status.PENDING if is_waiting(view):
            failure = Failure(FailureReason.INSUFFICIENT_RESOURCES, message, code=UNPLACEABLE)
            return Settled(Actual.FAILED, code=UNPLACEABLE, message=message, failure=failure)
        case Status.STOPPED if code == COMPLETED:
            return Settled(Actual.STOPPED, code=COMPLETED, message=message, final=True)
        case Status.FAILED:
            reason = _REASONS.get(view.failure_reason, FailureReason.RUNTIME_ERROR)
            failure = Failure(reason, message, retryable=view.reason.retryable, code=code)
            return Settled(Actual.FAILED, code=code, message=message, failure=failure)
        case _:
            return Settled(Actual.PENDING, code=code, message=message)


def _facts(view: pb.WorkloadView) -> dict[str, str]:
    """What the remote cluster reports about it, and where it is there."""
    shown = {
        **view.metadata,
        "remote_workload": view.workload_id,
        "remote_node": view.assigned_node_id,
    }
    return {key: value for key, value in shown.items() if value}
