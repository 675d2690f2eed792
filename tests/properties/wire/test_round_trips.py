"""Every value of the model round-trips through messages and stored bytes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import TypeVar

from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.bounded_yaml import dump
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.network import (
    NetworkConfiguration,
    NetworkId,
    NetworkName,
    NetworkRule,
    NodeNetwork,
    Peer,
)
from persys.model.node import Capabilities, NodeUsage, StoragePool, WorkloadUsage
from persys.model.placement import (
    Assignment,
    Constraint,
    HostPort,
    Offload,
    Operator,
    Resources,
    Rules,
    Strategy,
)
from persys.model.spec import (
    CloudInit,
    ContainerSpec,
    Disk,
    FileMount,
    HealthCheck,
    HealthType,
    Login,
    ManagedVolume,
    Network,
    Port,
    PullPolicy,
    RestartPolicy,
    Spec,
    VMSpec,
    VolumeMount,
    WorkloadType,
)
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Desired, Workload
from persys.wire.agent import messages as agent_messages
from persys.wire.agent import networks as agent_networks
from persys.wire.agent import spec as agent_spec
from persys.wire.compose import source as compose_source
from persys.wire.control import messages as control_messages
from persys.wire.control.jobs import job_message, job_of
from persys.wire.control.sets import template_message, template_of
from persys.wire.control.spec_decode import parse_spec, workload_rules, workload_spec
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec.health import CONTAINER_TYPES, VM_TYPES
from persys.wire.specfile.export import job_text, pool_text, set_text, workload_text
from persys.wire.specfile.parser import read_documents, read_spec_file
from persys.wire.specfile.spec_documents import JobDocument, PoolDocument, SetDocument
from persys.wire.stored import records, revision
from persys.wire.times import EPOCH, instant, timestamp

NODE = NodeId("n1")
NOW = datetime(2026, 1, 2, tzinfo=UTC)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
words = st.text("abcxyz0189", min_size=1, max_size=6)
amounts = st.integers(0, 1_000_000)
maps = st.dictionaries(words, texts, max_size=3)
paths = st.lists(words, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
instants = st.integers(10**6, 4 * 10**15).map(lambda count: EPOCH + timedelta(microseconds=count))
seconds = instants.map(lambda at: at.replace(microsecond=0))
resources = st.builds(Resources, amounts, amounts, amounts)
contents = st.lists(st.tuples(texts, st.integers(0, 0o777)), max_size=2)

restarts = st.one_of(
    st.builds(RestartPolicy, st.sampled_from(["no", "always", "unless-stopped"])),
    st.builds(RestartPolicy, st.just("on-failure"), st.integers(0, 99)),
)
volumes = st.builds(
    ManagedVolume,
    names,
    paths,
    st.sampled_from(["local", "nfs", "ceph-rbd"]),
    amounts,
    texts,
    st.sampled_from(["", "ext4", "xfs"]),
    st.booleans(),
    st.booleans(),
)


@st.composite
def health_checks(draw: st.DrawFn, types: Sequence[HealthType]) -> HealthCheck:
    kind = draw(st.sampled_from(types))
    probes = kind in (HealthType.HTTP, HealthType.TCP)
    return HealthCheck(
        kind,
        port=draw(st.integers(1, 65535)) if probes else 0,
        path=draw(paths) if kind is HealthType.HTTP else "",
        command=tuple(draw(st.lists(texts, min_size=1, max_size=2)))
        if kind is HealthType.EXEC
        else (),
        interval_seconds=draw(st.integers(0, 99)),
        timeout_seconds=draw(st.integers(0, 99)),
        retries=draw(st.integers(0, 9)),
        start_period_seconds=draw(st.integers(0, 99)),
        restart_unhealthy=draw(st.booleans()) and kind is not HealthType.NONE,
    )


@st.composite
def containers(draw: st.DrawFn) -> ContainerSpec:
    places = draw(st.lists(paths, max_size=4, unique=True))
    split = draw(st.integers(0, len(places)))
    ports = st.builds(
        Port, st.integers(1, 65535), st.integers(0, 65535), st.sampled_from(["tcp", "udp"])
    )
    return ContainerSpec(
        image=draw(words),
        command=tuple(draw(st.lists(texts, max_size=3))),
        args=tuple(draw(st.lists(texts, max_size=3))),
        env=draw(maps),
        volumes=tuple(
            VolumeMount(draw(paths), place, draw(st.booleans())) for place in places[:split]
        ),
        managed_volumes=tuple(
            ManagedVolume(draw(names), place, retain=draw(st.booleans()))
            for place in places[split:]
        ),
        ports=tuple(
            draw(
                st.lists(ports, max_size=3, unique_by=lambda port: (port.host_port, port.protocol))
            )
        ),
        restart=draw(restarts),
        privileged=draw(st.booleans()),
        pull_policy=draw(st.sampled_from(PullPolicy)),
        pids_max=draw(st.integers(0, 1000)),
        stop_grace_seconds=draw(st.integers(0, 600)),
        init=draw(st.booleans()),
        image_credential=draw(st.one_of(st.just(""), words)),
        health=draw(health_checks(CONTAINER_TYPES)),
        labels=draw(maps),
        files=tuple(
            FileMount(f"/files/{number}", content.encode(), mode)
            for number, (content, mode) in enumerate(draw(contents))
        ),
    )


variables = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]*", fullmatch=True), texts, max_size=3)
names_of_credentials = st.sampled_from(["", "forge"])
stacks = st.one_of(
    st.builds(
        partial(
            compose_source.compose, source_type="inline", text_field="yaml", git_repo="", git_ref=""
        ),
        text=words.map(lambda name: f"services:\n  {name}: {{image: '{name}'}}\n"),
        env=variables,
        image_credential=names_of_credentials,
        delete_volumes=st.booleans(),
    ),
    st.builds(
        partial(compose_source.compose, source_type="git", text="", text_field="yaml"),
        git_repo=words.map(lambda name: f"https://example.org/{name}.git"),
        git_ref=st.one_of(st.just(""), words),
        git_path=st.sampled_from(["", "deploy", "deploy/stack.yaml"]),
        git_credential=names_of_credentials,
        env=variables,
    ),
)

yaml_texts = st.sampled_from(["", "{}", "instance-id: one", '{"a": [1, 2]}'])
cloud_inits = st.builds(CloudInit, texts, yaml_texts, yaml_texts, texts)
addresses = st.one_of(st.just(""), st.ip_addresses().map(str))
optional_names = st.one_of(st.just(""), words)
plain_disks = st.builds(Disk, optional_names, amounts, st.sampled_from(["", "vda", "vdb", "sdc"]))
disks = st.builds(
    Disk,
    st.just(""),
    amounts,
    st.sampled_from(["", "vda", "vdb", "sdc"]),
    st.one_of(st.just(""), paths),
    st.sampled_from(["", "qcow2", "raw", "iso"]),
    st.sampled_from(["", "disk", "cdrom"]),
    st.booleans(),
)
networks = st.builds(
    Network,
    optional_names,
    st.booleans(),
    st.sampled_from(["10.0.0.2", "10.0.0.2/24"]),
    st.just(""),
    st.sampled_from(["", "10.0.0.1"]),
    st.lists(st.ip_addresses().map(str), max_size=2).map(tuple),
) | st.builds(Network, optional_names, st.booleans(), addresses)
logins = st.builds(
    Login,
    st.sampled_from(["", "debian"]),
    st.lists(words.map(lambda name: f"ssh-ed25519 {'A' * 20} {name}"), min_size=1, max_size=2).map(
        tuple
    ),
    st.sampled_from(["", "$6$salt$abcdefgh"]),
) | st.just(Login())


def with_devices_once(disks: list[Disk]) -> tuple[Disk, ...]:
    taken = [disk.device for disk in disks]
    return tuple(
        replace(disk, device="") if disk.device in taken[:index] else disk
        for index, disk in enumerate(disks)
    )


def machines(
    disk: st.SearchStrategy[Disk], network: st.SearchStrategy[Network]
) -> st.SearchStrategy[VMSpec]:
    devices = st.lists(disk, max_size=3).map(with_devices_once)
    machine_volumes = st.lists(volumes, max_size=2, unique_by=lambda one: one.mount_path).map(tuple)
    return st.builds(
        VMSpec,
        st.integers(1, 64),
        st.integers(1, 100_000),
        disks=devices,
        networks=st.lists(network, max_size=3).map(tuple),
        cloud_init=cloud_inits,
        os_image=st.sampled_from(["", "debian-12", "https://example.org/a.qcow2"]),
        managed_volumes=machine_volumes,
        restart=restarts,
        stop_grace_seconds=st.integers(0, 600),
        login=logins,
        health=st.one_of(st.just(HealthCheck()), health_checks(VM_TYPES)),
    )


special_machines = st.builds(
    lambda machine, name, metadata, user_data: replace(
        machine,
        name=name,
        metadata=metadata,
        cloud_init_base64="" if machine.cloud_init.user_data else user_data,
    ),
    machines(disks, networks),
    st.one_of(st.just(""), words),
    maps,
    texts,
)
specs: st.SearchStrategy[Spec] = st.one_of(
    containers(), stacks, machines(plain_disks, networks), special_machines
)

failures = st.one_of(
    st.none(),
    st.sampled_from(FailureReason).flatmap(
        lambda reason: st.builds(
            Failure,
            st.just(reason),
            texts.filter(bool),
            st.booleans() if reason.retryable else st.just(False),
            words,
        )
    ),
)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    failure = draw(failures)
    not_running = [Actual.FAILED, Actual.PENDING, Actual.UNKNOWN]
    well = [Actual.PENDING, Actual.RUNNING, Actual.STOPPED, Actual.UNKNOWN]
    return Observation(
        workload_id=WorkloadId(draw(names)),
        node_id=NODE,
        actual=draw(st.sampled_from(well if failure is None else not_running)),
        seen_at=draw(instants),
        revision=Revision(draw(words)),
        epoch=draw(amounts),
        failure=failure,
        message=draw(texts.filter(bool)),
        metadata=draw(maps),
    )


usages = st.builds(
    WorkloadUsage,
    names.map(WorkloadId),
    st.sampled_from(WorkloadType),
    seconds,
    st.floats(0, 1e6),
    amounts,
    amounts,
    amounts,
    amounts,
    amounts,
    texts,
)


values = st.text("abcxyz019.-_/ ", min_size=1, max_size=8).map(str.strip).filter(bool)
constraints = st.one_of(
    st.builds(Constraint, words, st.just(Operator.EXISTS)),
    st.builds(
        Constraint,
        words,
        st.sampled_from([Operator.EQUALS, Operator.DIFFERS]),
        values.map(lambda value: (value,)),
    ),
    st.builds(
        Constraint,
        words,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(values, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        Constraint,
        words,
        st.sampled_from([Operator.ABOVE, Operator.BELOW]),
        st.integers(-9, 9999).map(lambda number: (str(number),)),
    ),
    st.builds(
        Constraint,
        words,
        st.just(Operator.MATCHES),
        st.sampled_from([(".*",), ("r[0-9]+",), ("(a|b), (c|d)",)]),
    ),
    st.builds(
        Constraint,
        words,
        st.just(Operator.VERSION),
        st.lists(st.sampled_from([">=1.2", "<2", "=3", "!=2.1.0"]), min_size=1).map(tuple),
    ),
)


@st.composite
def rule_sets(draw: st.DrawFn) -> Rules:
    group = draw(st.one_of(st.just(""), words))
    offload = draw(st.sampled_from(Offload))
    return Rules(
        constraints=tuple(draw(st.lists(constraints, max_size=3))),
        tolerations=tuple(draw(st.lists(st.sampled_from(["*", "gpu", "team=ml"]), max_size=2))),
        group=group,
        apart=bool(group) and draw(st.booleans()),
        spread_over=tuple(draw(st.lists(words, max_size=2))) if group else (),
        strategy=draw(st.sampled_from([None, Strategy.SPREAD, Strategy.BINPACK])),
        priority=draw(st.integers(0, 100)),
        offload=offload,
        offload_data=offload is not Offload.NEVER and draw(st.booleans()),
        return_when_free=offload is Offload.WHEN_FULL and draw(st.booleans()),
    )


@given(containers(), rule_sets(), st.integers(0, 86400))
def test_placement_rules_round_trip_through_messages_and_stored_bytes(
    spec: ContainerSpec, rules: Rules, stop_after_seconds: int
) -> None:
    message = spec_message(
        spec, Resources(), {}, rules=rules, stop_after_seconds=stop_after_seconds
    )

    assert workload_rules(message) == (rules, stop_after_seconds)
    assert workload_spec(message) == (spec, Resources(), {})
    assert records.decode(records.encode(rules), Rules) == rules


@given(specs, resources, maps)
def test_a_spec_round_trips_through_a_control_message(
    spec: Spec, needs: Resources, metadata: dict[str, str]
) -> None:
    got, got_needs, got_metadata = workload_spec(spec_message(spec, needs, metadata))

    assert (got, got_metadata) == (spec, metadata)
    if isinstance(spec, VMSpec):
        # A machine needs at least what it is given.
        needs = Resources(
            needs.cpu_millicores or spec.vcpus * 1000,
            needs.memory_mb or spec.memory_mb,
            needs.disk_gb,
        )
    assert got_needs == needs


@given(names, specs, resources, maps, rule_sets(), st.sampled_from(["Running", "Stopped"]), amounts)
def test_a_workload_that_is_shown_as_yaml_or_json_can_be_applied_again(
    name: str,
    spec: Spec,
    needs: Resources,
    metadata: dict[str, str],
    rules: Rules,
    desired: str,
    stop_after: int,
) -> None:
    message = spec_message(spec, needs, metadata, rules=rules, stop_after_seconds=stop_after)
    view = control_pb2.WorkloadView(
        workload_id=name, desired_state=desired, status="Running", spec=message
    )
    as_json = MessageToDict(
        view, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )

    for text in (workload_text(view), workload_text(view, status=False), dump(as_json)):
        (document,) = read_spec_file(text)
        request = document.request
        assert (request.workload_id, request.desired_state) == (name, desired)
        assert workload_spec(request.spec) == workload_spec(message)
        assert workload_rules(request.spec) == workload_rules(message)


pools = st.builds(
    control_pb2.NodePoolSpec,
    pool_id=names,
    provider=words,
    region=texts,
    image=texts,
    sizes=st.lists(
        st.builds(
            control_pb2.MachineSize,
            name=texts,
            cpu_millicores=amounts,
            memory_mb=amounts,
            disk_gb=amounts,
            hour_price=st.floats(0, 1e6),
        ),
        max_size=2,
    ),
    min=st.integers(0, 99),
    max=st.integers(0, 99),
    spend_per_hour_max=st.floats(0, 1e6),
    idle_after_seconds=amounts,
    provision_deadline_seconds=amounts,
    labels=maps,
    taints=st.lists(texts, max_size=2),
    tier=st.integers(0, 9),
    software_url=texts,
    software_sha256=texts,
    options=maps,
    credentials=texts,
)


@given(pools, st.booleans())
def test_a_node_pool_that_is_shown_as_yaml_can_be_applied_again(
    spec: control_pb2.NodePoolSpec, paused: bool
) -> None:
    (document,) = read_documents(pool_text(control_pb2.NodePoolView(spec=spec, paused=paused)))

    assert isinstance(document, PoolDocument)
    assert document.pool == spec


# Members of a set run continuously; those of a job end, and keep no volumes.
of_sets = containers().map(lambda spec: replace(spec, restart=RestartPolicy()))
of_jobs = containers().map(
    lambda spec: replace(
        spec, restart=RestartPolicy("no"), health=HealthCheck(), managed_volumes=()
    )
)
some = st.integers(1, 1_000)
needs = st.builds(Resources, some, some, amounts)
set_templates = st.builds(spec_message, of_sets, needs, maps, rules=rule_sets())
job_templates = st.builds(spec_message, of_jobs, resources, maps, rules=rule_sets())
update_policies = st.builds(
    control_pb2.UpdatePolicy,
    max_parallel=st.integers(2, 99),
    order=st.sampled_from(["", "in-place"]),
    min_healthy_seconds=st.sampled_from([None, 0, 1, 90]),
    healthy_deadline_seconds=st.sampled_from([0, 91, 600]),
    on_failure=st.sampled_from(["", "pause"]),
    canary=st.integers(1, 3),
    bake_seconds=st.sampled_from([0, 1, 600]),
)
scale_policies = st.builds(
    control_pb2.ScalePolicy,
    min=st.integers(1, 3),
    max=st.integers(3, 99),
    cpu_percent=st.integers(1, 100),
    memory_percent=st.integers(0, 100),
    cooldown_seconds=st.sampled_from([0, 1, 90]),
) | st.builds(
    control_pb2.ScalePolicy,
    min=st.integers(1, 3),
    max=st.integers(3, 99),
    prometheus_url=texts.map(lambda text: f"http://{text}"),
    prometheus_query=texts.filter(bool),
    prometheus_target=st.floats(0.001, 1e9),
)
sets = st.builds(
    control_pb2.SetSpec,
    set_id=names,
    replicas=st.integers(3, 99),
    template=set_templates,
    update=st.none() | update_policies,
) | st.builds(
    control_pb2.SetSpec,
    set_id=names,
    template=set_templates,
    scale=scale_policies,
    update=st.none() | update_policies,
)
jobs = st.builds(
    control_pb2.JobSpec,
    job_id=names,
    template=job_templates,
    completions=st.sampled_from([0, 2, 99]),
    parallelism=st.sampled_from([0, 2, 99]),
    retries=st.integers(0, 9),
    deadline_seconds=st.sampled_from([0, 1, 3600]),
    keep=st.sampled_from([0, 1, 99]),
    fail_on=st.lists(st.integers(1, 255), max_size=3),
    schedule=st.none()
    | st.builds(
        control_pb2.JobSchedule,
        cron=st.sampled_from(["0 3 * * *", "*/5 * * * 1-5"]),
        timezone=st.sampled_from(["", "Europe/Berlin"]),
        overlap=st.sampled_from(["", "allow", "replace"]),
        start_within_seconds=st.sampled_from([0, 10, 90]),
    ),
)


@given(sets, st.sampled_from(["Running", "Stopped"]), st.booleans())
def test_a_set_that_is_shown_as_yaml_can_be_applied_again(
    spec: control_pb2.SetSpec, desired: str, status: bool
) -> None:
    view = control_pb2.SetView(spec=spec, desired_state=desired, phase="Steady")

    (document,) = read_documents(set_text(view, status=status))

    assert isinstance(document, SetDocument)
    assert document.request.desired_state == desired
    assert same(document.request.set, spec)


@given(jobs, st.booleans())
def test_a_job_that_is_shown_as_yaml_can_be_applied_again(
    spec: control_pb2.JobSpec, status: bool
) -> None:
    view = control_pb2.JobView(spec=spec, suspended=True)

    (document,) = read_documents(job_text(view, status=status))

    assert isinstance(document, JobDocument)
    assert same(document.request.job, spec)


@given(jobs)
def test_a_job_round_trips_through_its_message(spec: control_pb2.JobSpec) -> None:
    job = job_of(spec, template_of(parse_spec(spec.template)))
    message = job_message(job)

    assert job_of(message, template_of(parse_spec(message.template))) == job


SpecWithTemplate = TypeVar("SpecWithTemplate", control_pb2.SetSpec, control_pb2.JobSpec)


def same(one: SpecWithTemplate, other: SpecWithTemplate) -> bool:
    """Equal, except for fields of the template that are written in another way."""
    parsed = [workload_spec(each.template) for each in (one, other)]
    rules = [workload_rules(each.template) for each in (one, other)]
    plain = []
    for each in (one, other):
        copy = type(each)()
        copy.CopyFrom(each)
        copy.ClearField("template")
        plain.append(copy)
    return parsed[0] == parsed[1] and rules[0] == rules[1] and plain[0] == plain[1]


joined = st.lists(names, max_size=8, unique=True).map(tuple)


@given(
    names, specs, resources, st.sampled_from([Desired.RUNNING, Desired.STOPPED]), amounts, joined
)
def test_a_workload_round_trips_through_an_agent_message_with_derived_fields(
    name: str,
    spec: Spec,
    needs: Resources,
    desired: Desired,
    epoch: int,
    networks: tuple[str, ...],
) -> None:
    workload = Workload(
        WorkloadId(name),
        spec,
        Revision("r1"),
        NOW,
        NOW,
        desired=desired,
        resources=needs,
        networks=networks,
    )

    order = agent_messages.apply(agent_messages.apply_message(workload, epoch))

    assert order.spec == agent_spec.with_derived_fields(workload)
    assert (order.workload_id, order.epoch, order.desired) == (name, epoch, desired)
    assert order.networks == networks


@given(containers(), joined)
def test_networks_round_trip_through_a_control_message(
    spec: ContainerSpec, networks: tuple[str, ...]
) -> None:
    parsed = parse_spec(spec_message(spec, Resources(), {}, networks=networks))

    assert parsed.networks == networks
    assert template_message(template_of(parsed)).networks == list(networks)


subnets = st.builds(
    lambda third, fourth: f"10.128.{third}.{fourth}/26",
    st.integers(0, 255),
    st.sampled_from([0, 64, 128, 192]),
)
ip_lists = st.lists(st.ip_addresses(v=4).map(str), max_size=3).map(tuple)
configurations = st.builds(
    NetworkConfiguration,
    st.text("0123456789abcdef", min_size=1, max_size=16),
    st.lists(
        st.builds(
            NodeNetwork,
            names.map(NetworkId),
            st.integers(1, 2**24 - 1),
            subnets,
            st.lists(subnets, max_size=3).map(tuple),
            st.sampled_from(["", "fd00::/64"]),
            st.booleans(),
            st.lists(
                st.builds(
                    Peer,
                    names.map(NodeId),
                    st.sampled_from(["10.0.0.1", "node-1"]),
                    st.lists(subnets, max_size=2).map(tuple),
                    words,
                ),
                max_size=2,
            ).map(tuple),
            st.lists(st.builds(NetworkName, names, ip_lists), max_size=2).map(tuple),
            st.lists(
                st.builds(
                    NetworkRule,
                    ip_lists,
                    ip_lists,
                    st.lists(st.integers(1, 65_535), max_size=2).map(tuple),
                    st.sampled_from(["", "tcp", "udp"]),
                ),
                max_size=2,
            ).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    names,
)


@given(configurations)
def test_a_network_configuration_round_trips_through_its_message(
    found: NetworkConfiguration,
) -> None:
    assert agent_networks.configuration(agent_networks.configuration_message(found)) == found


@given(names, specs, resources)
def test_deriving_fields_is_idempotent(name: str, spec: Spec, needs: Resources) -> None:
    workload = Workload(WorkloadId(name), spec, Revision("r1"), NOW, NOW, resources=needs)
    once = agent_spec.with_derived_fields(workload)

    again = agent_spec.with_derived_fields(
        Workload(workload.id, once, workload.revision, NOW, NOW, resources=needs)
    )

    assert again == once


@given(specs, resources, maps, instants)
def test_a_workload_round_trips_through_stored_bytes(
    spec: Spec, needs: Resources, metadata: dict[str, str], at: datetime
) -> None:
    workload = Workload(
        WorkloadId("web"), spec, Revision("r1"), at, at, Desired.STOPPED, needs, metadata
    )

    assert records.decode(records.encode(workload), Workload) == workload


@given(st.frozensets(st.builds(HostPort, st.integers(1, 9), st.sampled_from(["tcp", "udp"]))))
def test_equal_records_have_equal_bytes(ports: frozenset[HostPort]) -> None:
    one, other = (
        Assignment(WorkloadId("web"), NODE, 1, NOW, host_ports=frozenset(order))
        for order in (sorted(ports), sorted(ports, reverse=True))
    )

    assert records.encode(one) == records.encode(other)
    assert records.decode(records.encode(one), Assignment) == one


@given(containers(), resources, maps, st.randoms(use_true_random=False))
def test_a_revision_does_not_depend_on_the_order_of_maps(
    spec: ContainerSpec, needs: Resources, metadata: dict[str, str], random: Random
) -> None:
    def shuffled(values: dict[str, str]) -> dict[str, str]:
        items = list(values.items())
        random.shuffle(items)
        return dict(items)

    message = spec_message(spec, needs, metadata)
    same = spec_message(spec, needs, shuffled(metadata))
    same.container.ClearField("env")
    for key, value in shuffled(spec.env).items():
        same.container.env[key] = value

    assert revision.revision_of(*workload_spec(message)) == revision.revision_of(
        *workload_spec(same)
    )


@given(specs, specs)
def test_revisions_are_equal_only_for_equal_specs(one: Spec, other: Spec) -> None:
    nothing = Resources()

    same = revision.revision_of(one, nothing, {}) == revision.revision_of(other, nothing, {})

    assert same == (one == other)


@given(observations())
def test_an_observation_round_trips_through_both_contracts(seen: Observation) -> None:
    to_scheduler = control_messages.status_message(seen)
    to_poller = agent_messages.status_message(seen, type=WorkloadType.VM, desired=Desired.RUNNING)

    assert control_messages.observation(to_scheduler, NODE, seen.seen_at) == seen
    assert agent_messages.observation(to_poller, NODE, seen.seen_at) == seen


@given(usages)
def test_usage_round_trips_through_both_contracts(used: WorkloadUsage) -> None:
    assert control_messages.workload_usage(control_messages.workload_usage_message(used)) == used
    assert agent_messages.workload_usage(agent_messages.workload_usage_message(used)) == used


@given(st.builds(NodeUsage, amounts, amounts, amounts, amounts, amounts, amounts))
def test_node_usage_round_trips(used: NodeUsage) -> None:
    assert control_messages.usage(control_messages.usage_message(used)) == used


@given(
    st.builds(
        Capabilities,
        amounts,
        amounts,
        st.lists(st.builds(StoragePool, words, words, amounts), max_size=3).map(tuple),
        st.frozensets(st.sampled_from(WorkloadType)),
        st.frozensets(words),
        st.builds(Resources, amounts, amounts),
        st.frozensets(words),
        st.integers(0, 100),
        st.floats(0, 1_000_000),
        st.builds(Resources, amounts, amounts, amounts),
        words,
        words,
        st.lists(subnets, max_size=2).map(tuple),
    )
)
def test_capabilities_round_trip(has: Capabilities) -> None:
    assert (
        control_messages.capabilities(control_messages.capabilities_message(has), has.features)
        == has
    )


@given(
    st.builds(
        Action,
        words.map(ActionId),
        names.map(WorkloadId),
        st.sampled_from(ActionKind),
        st.sampled_from(ActionState),
        seconds,
        st.one_of(st.none(), seconds),
        st.one_of(st.none(), seconds),
        texts,
    )
)
def test_an_action_round_trips(done: Action) -> None:
    assert agent_messages.action(agent_messages.action_message(done)) == done


@given(instants)
def test_a_time_round_trips(at: datetime) -> None:
    assert instant(timestamp(at)) == at
