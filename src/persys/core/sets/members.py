"""Members of a set: their ids and numbers, and their intents from the template.

A member is an ordinary workload. Its id ends with its number, which is not its index: a start-first update
replaces the member of an index with one that has another number.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import count

from msgspec.structs import replace

from persys.core.agent.cloud_init import YAML_LIMITS, is_wanted
from persys.core.bounded_yaml import dump, load_mapping
from persys.core.placement.requirements import has_data
from persys.core.sets.situation import MemberIntent
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, Operator, Rules
from persys.model.sets import INDEX_VARIABLE, Template, UpdateOrder, UpdatePolicy, WorkloadSet
from persys.model.spec import (
    LOCAL_DRIVER,
    ComposeSpec,
    ContainerSpec,
    ManagedVolume,
    Spec,
    VMSpec,
)
from persys.model.workload import Membership, Workload

NODE_ID_LABEL = "node.id"
INDEX_METADATA = "persys.index"  # in the metadata of a VM
INDEX_META_DATA = "persys_index"  # in the instance meta-data of cloud-init


def member_id(set_id: str, number: int) -> WorkloadId:
    return WorkloadId(f"{set_id}-{number}")


def new_numbers(indexes: Sequence[int], used: AbstractSet[int]) -> dict[int, int]:
    """The numbers of new members, by index: the index itself if possible, else the lowest free number."""
    numbers = {index: index for index in indexes if index not in used}
    free = (number for number in count() if number not in used and number not in numbers)
    return {index: numbers[index] if index in numbers else next(free) for index in indexes}


def holds_data(template: Template) -> bool:
    """Whether a member has data on its node that another member would miss or damage."""
    return has_data(template.spec)


def leaves_data(template: Template) -> bool:
    """Whether data of a deleted member stays on its node."""
    match template.spec:
        case ContainerSpec() as spec:
            return any(not one.read_only for one in spec.volumes) or _retains(spec.managed_volumes)
        case ComposeSpec() as spec:
            return spec.needs.holds_data and not spec.delete_volumes
        case VMSpec() as spec:
            return _retains(spec.managed_volumes)


def _retains(volumes: Iterable[ManagedVolume]) -> bool:
    return any(volume.retain and volume.driver == LOCAL_DRIVER for volume in volumes)


def order_of(policy: UpdatePolicy, template: Template) -> UpdateOrder:
    """Members with data are never replaced. Others are, unless two of them cannot share a node."""
    if holds_data(template):
        return UpdateOrder.IN_PLACE
    if policy.order is not None:
        return policy.order
    exclusive = template.rules.apart or _is_exclusive(template.spec)
    return UpdateOrder.IN_PLACE if exclusive else UpdateOrder.START_FIRST


def member_workload(
    record: WorkloadSet,
    template: Template,
    intent: MemberIntent,
    old: Workload | None,
    now: datetime,
) -> Workload:
    """The intent of a member. `template` is that of its revision. Returns `old` if nothing changes."""
    new = Workload(
        id=member_id(record.set_id, intent.number),
        spec=with_index(template.spec, intent.index),
        revision=template.revision,
        created_at=old.created_at if old else now,
        updated_at=old.updated_at if old else now,
        desired=intent.desired,
        resources=template.resources,
        metadata=template.metadata,
        rules=_rules(record, template.rules, intent.pinned_node),
        stop_after_seconds=template.stop_after_seconds,
        networks=template.networks,
        membership=Membership(
            owner=record.set_id,
            index=intent.index,
            number=intent.number,
            revision=intent.revision,
            node_id=intent.pinned_node or NodeId(""),
        ),
    )
    return old if old == new else replace(new, updated_at=now)


def with_index(spec: Spec, index: int) -> Spec:
    """The spec of a member of a set or a run, which finds its index in its environment or meta-data."""
    match spec:
        case ContainerSpec() | ComposeSpec():
            return replace(spec, env={**spec.env, INDEX_VARIABLE: str(index)})
        case VMSpec():
            return _machine_with_index(spec, index)


def _machine_with_index(spec: VMSpec, index: int) -> VMSpec:
    marked = replace(spec, metadata={**spec.metadata, INDEX_METADATA: str(index)})
    # Meta-data alone would give a seed to a VM whose own disk may not have cloud-init.
    if not is_wanted(spec):
        return marked
    given = spec.cloud_init.meta_data
    found = load_mapping(given, YAML_LIMITS) if given else {}
    meta_data = dump({**found, INDEX_META_DATA: index}, width=4096)
    return replace(marked, cloud_init=replace(spec.cloud_init, meta_data=meta_data))


def _rules(record: WorkloadSet, rules: Rules, pinned_node: NodeId | None) -> Rules:
    """Members of a set are a group, so that placement spreads them."""
    grouped = replace(rules, group=rules.group or record.set_id)
    if pinned_node is None:
        return grouped
    pinned = Constraint(NODE_ID_LABEL, Operator.EQUALS, (pinned_node,))
    return replace(grouped, constraints=(*rules.constraints, pinned))


def _is_exclusive(spec: Spec) -> bool:
    """Whether the spec has a host port or a project name, of which a node has only one."""
    match spec:
        case ContainerSpec():
            return any(port.host_port for port in spec.ports)
        case ComposeSpec():
            return bool(spec.needs.ports or spec.project_name)
        case VMSpec():
            return False
