"""Every request to the scheduler is refused with its field, or parsed and can be executed.

The messages contain anything that their types allow, mostly values that are almost valid.
"""

from datetime import UTC, datetime
from typing import TypeVar

from hypothesis import event, given
from hypothesis import strategies as st

from persys.core.placement.constraints import holds
from persys.errors import InvalidError
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.workload import Workload
from persys.wire.agent import messages as agent_messages
from persys.wire.agent import spec as agent_spec
from persys.wire.control import placement
from persys.wire.control.spec_decode import VM_SPEC_KEY, workload_spec
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.limits import check as limits_check
from persys.wire.stored import records
from persys.wire.stored import revision as stored_revision

NOW = datetime(2026, 1, 2, tzinfo=UTC)

ValueT = TypeVar("ValueT")


def mostly(
    right: st.SearchStrategy[ValueT], anything: st.SearchStrategy[ValueT]
) -> st.SearchStrategy[ValueT]:
    return st.integers(0, 29).flatmap(lambda roll: anything if roll == 29 else right)


def usually(*right: str) -> st.SearchStrategy[str]:
    return mostly(st.sampled_from(right), texts)


texts = st.text(st.characters(codec="utf-8"), max_size=6)
flags = st.booleans()
int32s = mostly(st.integers(1, 2_000), st.integers(-(2**31), 2**31 - 1))
int64s = mostly(st.integers(1, 2_000), st.integers(-(2**63), 2**63 - 1))
maps = st.dictionaries(mostly(st.text("AB", min_size=1, max_size=2), texts), texts, max_size=2)


def few(items: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(items, max_size=2)


paths = mostly(
    st.text("abcdef", min_size=2, max_size=6).map("/".__add__), usually("", "/", "/a/..")
)
volumes = st.builds(
    pb.ManagedVolumeSpec,
    name=usually("data"),
    driver=usually("", "nfs"),
    size_gb=int64s,
    access_mode=texts,
    fs_type=usually("", "ext4"),
    mount_path=paths,
    read_only=flags,
    retain_policy=usually("", "Retain"),
)
containers = st.builds(
    pb.ContainerSpec,
    image=usually("nginx"),
    command=few(texts),
    env=maps,
    volumes=few(st.builds(pb.VolumeMount, host_path=paths, container_path=paths, read_only=flags)),
    ports=few(
        st.builds(pb.Port, host_port=int32s, container_port=int32s, protocol=usually("", "UDP"))
    ),
    restart_policy=usually("", "no", "on-failure:3"),
    privileged=flags,
    managed_volumes=few(volumes),
    args=few(texts),
    image_pull_policy=usually("", "Always"),
    pids_max=int64s,
    stop_grace_seconds=int32s,
    init=flags,
    labels=maps,
)
stacks = st.builds(
    pb.ComposeSpec,
    source_type=usually("", "inline"),
    git_repo=usually(""),
    git_ref=usually(""),
    inline_yaml=usually("services: {}", "c2VydmljZXM6IHt9"),
    env=maps,
)
machines = st.builds(
    pb.VMSpec,
    vcpus=int32s,
    memory_mb=int64s,
    disks=few(
        st.builds(
            pb.DiskConfig, pool_name=texts, size_gb=int64s, mount_point=usually("", "vda", "vdb")
        )
    ),
    networks=few(
        st.builds(
            pb.NetworkConfig, bridge=texts, dhcp=flags, static_ip=usually("", "10.0.0.1", "::1/64")
        )
    ),
    cloud_init=st.builds(pb.CloudInitConfig, user_data=texts),
    os_image=texts,
    managed_volumes=few(volumes),
)
messages = st.one_of(
    *(
        st.builds(
            pb.WorkloadSpec,
            type=usually("", kind),
            resources=st.builds(
                pb.ResourceRequirements, cpu_millicores=int64s, memory_mb=int64s, disk_gb=int64s
            ),
            metadata=mostly(
                maps,
                st.fixed_dictionaries(
                    {VM_SPEC_KEY: usually("e30=", "eyJ2Y3B1cyI6MSwibWVtb3J5X21iIjoxfQ==")}
                ),
            ),
            **{kind: spec},
        )
        for kind, spec in (("container", containers), ("compose", stacks), ("vm", machines))
    )
)


@given(
    st.builds(
        pb.PlacementRules,
        constraints=st.lists(
            st.one_of(
                st.text(st.characters(codec="utf-8"), max_size=40),
                st.builds(
                    "{} {} {}".format,
                    st.sampled_from(["zone", "node.id", "a b"]),
                    st.sampled_from(["=", "!=", "in", "notin", ">", "<", "~", "version", "exists"]),
                    st.text("ab(,)[]*+?{}|\\\\.19<>= ", max_size=20),
                ),
            ),
            max_size=3,
        ),
        tolerations=st.lists(texts, max_size=2),
        group=texts,
        anti_affinity=st.sampled_from(["", "required", "Preferred", "x"]),
        spread_over=st.lists(texts, max_size=2),
        strategy=st.sampled_from(["", "spread", "BinPack", "x"]),
        priority=st.none() | st.integers(-5, 105),
        offload=st.sampled_from(["", "never", "when-full", "prefer", "x"]),
        offload_data=st.booleans(),
        **{"return": st.sampled_from(["", "when-free", "x"])},
    ),
    st.dictionaries(st.sampled_from(["zone", "node.id"]), st.text(max_size=70)),
)
def test_placement_rules_are_refused_or_can_be_evaluated_and_encoded(
    message: pb.PlacementRules, labels: dict[str, str]
) -> None:
    try:
        rules = placement.rules(message)
    except InvalidError as refused:
        event(f"refused: {refused.field.partition('[')[0]}")
        return
    assert placement.rules(placement.rules_message(rules)) == rules
    for constraint in rules.constraints:
        assert holds(constraint, labels) in (True, False)


@given(messages)
def test_a_spec_is_refused_or_reaches_the_agent_completely(message: pb.WorkloadSpec) -> None:
    try:
        limits_check.check(message)
        spec, resources, metadata = workload_spec(message)
    except InvalidError as refused:
        event(f"refused: {refused.field.partition('[')[0]}")
        return
    event("read")
    revision = stored_revision.revision_of(spec, resources, metadata)
    workload = Workload(WorkloadId("web"), spec, revision, NOW, NOW, resources=resources)
    assert agent_messages.apply(
        agent_messages.apply_message(workload, 1)
    ).spec == agent_spec.with_derived_fields(workload)
    assert records.decode(records.encode(workload), Workload) == workload
    assert workload_spec(spec_message(spec, resources, metadata)) == (
        spec,
        resources,
        metadata,
    )


@given(
    st.builds(
        agent_pb2.WorkloadStatus,
        id=texts,
        revision_id=texts,
        message=usually("workload not found"),
        created_at=int64s,
        metadata=st.dictionaries(
            usually("task_id", "failure_reason", "last_error", "retry_terminal"),
            usually("delete-1", "INVALID_IMAGE", "true"),
            max_size=4,
        ),
        actual_state=st.sampled_from(range(6)),
        epoch=int64s,
    )
)
def test_every_reported_status_is_an_observation(message: agent_pb2.WorkloadStatus) -> None:
    seen = agent_messages.observation(message, NodeId("n1"), NOW)

    assert (seen.workload_id, seen.revision) == (message.id, Revision(message.revision_id))
