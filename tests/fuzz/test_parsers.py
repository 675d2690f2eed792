"""Fuzzers of everything that reads text or messages without a service: the input is read, or refused.

A refusal is a PersysError that names what is wrong. Anything else is a defect, and so is an input that takes
long.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import pytest
from msgspec import Struct

from fuzz.budget import inputs, quickly
from fuzz.generator import a_change, a_message, a_text, some_bytes
from persys.core import cloud_init
from persys.errors import PersysError
from persys.model.assignment import Assignment, Tombstone
from persys.model.belief import Belief, Retry
from persys.model.event import Event
from persys.model.ids import WorkloadId
from persys.model.node import Node
from persys.model.spec import VMSpec
from persys.model.workload import Workload
from persys.wire import agent_spec, control_spec, records, snapshot, specfile, stackfile
from persys.wire.canonical import revision_of
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

COMPOSE_KEYS = (
    "services", "volumes", "networks", "secrets", "configs", "image", "build", "ports", "environment",
    "deploy", "resources", "limits", "cpus", "memory", "restart", "command", "extends", "include",
)  # fmt: skip
SPEC_KEYS = (
    "id", "workload_id", "type", "image", "spec", "container", "compose", "vm", "resources", "cpu_millicores",
    "memory_mb", "env", "ports", "volumes", "desired_state", "placement", "stop_after", "health_check",
)  # fmt: skip
NOW = datetime(2030, 1, 1, tzinfo=UTC)
META_KEYS = ("instance-id", "local-hostname", "version", "ethernets", "addresses", "<<")


def read_compose(random: Random) -> None:
    stackfile.read_inline(a_text(random, COMPOSE_KEYS), {"VAR": "x"})


def read_spec_file(random: Random) -> None:
    specfile.read_spec_file(a_text(random, SPEC_KEYS))


def read_control_spec(random: Random) -> None:
    message = control_pb2.WorkloadSpec(
        type="container", container=control_pb2.ContainerSpec(image="nginx")
    )
    if random.random() < 0.5:
        a_change(random, message)
    else:
        message.CopyFrom(a_message(random, control_pb2.WorkloadSpec.DESCRIPTOR))
    spec, resources, metadata = control_spec.workload_spec(message)
    rules, _ = control_spec.workload_rules(message)
    workload = Workload(
        id=WorkloadId("w"),
        spec=spec,
        resources=resources,
        metadata=metadata,
        revision=revision_of(spec, resources, metadata),
        rules=rules,
        created_at=NOW,
        updated_at=NOW,
    )
    assert records.decode(records.encode(workload), Workload) == workload


def read_agent_spec(random: Random) -> None:
    message = agent_pb2.WorkloadSpec(container=agent_pb2.ContainerSpec(image="nginx"))
    if random.random() < 0.5:
        a_change(random, message)
    else:
        message.CopyFrom(a_message(random, agent_pb2.WorkloadSpec.DESCRIPTOR))
    spec = agent_spec.spec(message)
    assert agent_spec.spec(agent_spec.spec_message(spec)) == spec


def read_cloud_init(random: Random) -> None:
    message = control_pb2.VMSpec(vcpus=1, memory_mb=256)
    message.cloud_init.meta_data = a_text(random, META_KEYS)
    message.cloud_init.network_config = a_text(random, META_KEYS)
    message.cloud_init.user_data = a_text(random, META_KEYS)
    spec: VMSpec = control_spec.vm(message)
    cloud_init.seed(WorkloadId("w"), spec, ())


def read_record(random: Random) -> None:
    kind: type[Struct] = random.choice(
        (Workload, Assignment, Tombstone, Belief, Retry, Node, Event)
    )
    records.decode(b'{"schema":1,' + some_bytes(random) + b"}", kind)


def read_snapshot(random: Random) -> None:
    snapshot.read([some_bytes(random) for _ in range(random.randint(0, 4))])


@pytest.mark.parametrize(
    "read",
    [
        read_compose,
        read_spec_file,
        read_control_spec,
        read_agent_spec,
        read_cloud_init,
        read_record,
        read_snapshot,
    ],
    ids=lambda read: read.__name__.removeprefix("read_"),
)
def test_an_input_is_read_or_refused(read: Callable[[Random], None]) -> None:
    for seed, random in inputs():
        try:
            with quickly(seed):
                read(random)
        except PersysError:
            continue
        except Exception as err:
            err.add_note(f"PERSYS_FUZZ_SEED={seed}")
            raise
