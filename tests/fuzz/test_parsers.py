"""Fuzzers of all parsers of texts, messages and files: the input is parsed or refused.

A refusal is a PersysError with the problem. Anything else is a defect, and so is an input that takes long.
What the scheduler accepts can be stored, loaded, sent to an agent, and is accepted there.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import Struct

from fuzz import certificate_requests, corpus
from fuzz.budget import inputs
from fuzz.generator import a_change, a_message, some_bytes
from fuzz.mutation import TEXTS, a_text_like, as_yaml, bytes_like, changed
from persys.agent.runtimes.compose import document as compose_document
from persys.ca.csr import parse_csr
from persys.core.agent import cloud_init
from persys.core.agent.compose_policy import Json, first_violation, violations
from persys.errors import PersysError
from persys.gateway.dashboard.routes import LIMITS
from persys.model.event import Event
from persys.model.ids import Revision, WorkloadId
from persys.model.node import Node
from persys.model.placement import Assignment, Tombstone
from persys.model.spec import ContainerSpec, VMSpec
from persys.model.status import Retry, WorkloadStatus
from persys.model.workload import Workload
from persys.wire.agent import (
    messages as agent_messages,
)
from persys.wire.agent import spec as agent_spec
from persys.wire.agent import vm
from persys.wire.compose import compose_file
from persys.wire.compose import source as compose_source
from persys.wire.control import spec_decode
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check
from persys.wire.specfile import parser as specfile_read
from persys.wire.specfile.spec_documents import JobDocument, SetDocument, SpecDocument
from persys.wire.stored import records, snapshot
from persys.wire.stored.revision import revision_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ENV = {"A": "x", "COMPOSE_PROFILES": "p"}
PLACE = Path("/srv/project")
INTACT = records.encode(
    Workload(
        id=WorkloadId("w"),
        spec=ContainerSpec("nginx"),
        revision=Revision("r1"),
        created_at=NOW,
        updated_at=NOW,
    )
)
KINDS: tuple[type[Struct], ...] = (
    Workload,
    Assignment,
    Tombstone,
    WorkloadStatus,
    Retry,
    Node,
    Event,
)


def read_compose_file(random: Random) -> None:
    document = changed(
        random, random.choice(corpus.compose_documents()), (corpus.REFUSED_PARTS, corpus.FULL_STACK)
    )
    text = compose_source.compose_text(as_yaml(random, document), "inline_yaml")
    if random.random() < 0.5:
        compose_file.read_inline(text, ENV)
    else:
        compose_file.read_resolved(text, project="pp", inside=str(PLACE))


def read_compose_policy(random: Random) -> None:
    """The document that the agent executes: an accepted one has only allowed keys."""
    document = changed(
        random, random.choice(corpus.compose_documents()), (corpus.REFUSED_PARTS, corpus.FULL_STACK)
    )
    text = compose_source.compose_text(as_yaml(random, document), "the Compose file")
    compose_file.read_resolved(text, project="pp", inside=str(PLACE))
    loaded = compose_document.load(text)
    loaded = compose_document.with_active_services(loaded, frozenset("*"))
    for service in compose_document.section(loaded, "services").values():
        first_violation(service, "services.a")
    if violations(loaded):
        return
    corpus.check_allowed(loaded)
    compose_document.file_uses(loaded)
    loaded, _ = compose_document.with_values(loaded, ENV)
    loaded = compose_document.with_moved_paths(loaded, old=PLACE, new=Path("/srv/copy"))
    loaded = compose_document.with_own_images(loaded, "pp")
    loaded = compose_document.with_pids_limit(loaded, 100, is_v1=random.random() < 0.5)
    assert not violations(loaded)
    corpus.check_allowed(json.loads(compose_document.encode(loaded)))


def read_spec_file(random: Random) -> None:
    documents = corpus.spec_documents()
    document = changed(random, random.choice(documents), documents)
    for found in specfile_read.read_documents(as_yaml(random, document), LIMITS):
        if isinstance(found, SpecDocument) and found.request.HasField("spec"):
            check_accepted(found.request)
        elif isinstance(found, SetDocument):
            check_template(found.request.set.template)
        elif isinstance(found, JobDocument):
            check_template(found.request.job.template)


def check_template(template: control_pb2.WorkloadSpec) -> None:
    check_accepted(control_pb2.ApplyWorkloadRequest(workload_id="w", spec=template))


def read_control_spec(random: Random) -> None:
    request = control_pb2.ApplyWorkloadRequest(workload_id="w", spec=a_control_spec(random))
    check_accepted(request)


def a_control_spec(random: Random) -> control_pb2.WorkloadSpec:
    if random.random() < 0.3:
        complete: control_pb2.WorkloadSpec = a_message(random, control_pb2.WorkloadSpec.DESCRIPTOR)
        return complete
    (found,) = specfile_read.read_spec_file(json.dumps(random.choice(corpus.FULL_SPECS[:-1])))
    spec = found.request.spec
    a_change(random, spec)
    return spec


def check_accepted(request: control_pb2.ApplyWorkloadRequest) -> None:
    """What the scheduler accepts is stored, loaded, sent and accepted by an agent."""
    limits_check.check(request)
    parsed = spec_decode.parse_spec(request.spec)
    workload = Workload(
        id=WorkloadId("w"),
        spec=parsed.spec,
        resources=parsed.resources,
        metadata=parsed.metadata,
        revision=revision_of(parsed.spec, parsed.resources, parsed.metadata),
        rules=parsed.rules,
        created_at=NOW,
        updated_at=NOW,
    )
    assert records.decode(records.encode(workload), Workload) == workload
    sent = agent_pb2.ApplyWorkloadRequest.FromString(
        agent_messages.apply_message(workload, 1).SerializeToString()
    )
    try:
        order = agent_messages.apply(sent)
    except PersysError as err:
        raise AssertionError(f"the scheduler accepts what an agent refuses: {err}") from err
    assert order.spec == agent_spec.with_derived_fields(workload)


def read_agent_spec(random: Random) -> None:
    message = agent_pb2.ApplyWorkloadRequest(id="w")
    if random.random() < 0.6:
        (found,) = specfile_read.read_spec_file(json.dumps(random.choice(corpus.FULL_SPECS[:-1])))
        spec, *_ = spec_decode.workload_spec(found.request.spec)
        message.spec.CopyFrom(agent_spec.spec_message(spec))
        a_change(random, message.spec)
    else:
        message.spec.CopyFrom(a_message(random, agent_pb2.WorkloadSpec.DESCRIPTOR))
    order = agent_messages.apply(message)
    assert agent_spec.spec(agent_spec.spec_message(order.spec)) == order.spec
    if isinstance(order.spec, VMSpec):
        cloud_init.seed(WorkloadId("w"), order.spec, ())


def read_cloud_init(random: Random) -> None:
    """Parsed by the scheduler, sent to an agent, and written to a seed image there."""
    message = control_pb2.VMSpec(vcpus=1, memory_mb=256)
    for name, text in corpus.CLOUD_INIT.items():
        if random.random() < 0.7:
            setattr(message.cloud_init, name, a_cloud_init_text(random, text))
    if random.random() < 0.5:
        message.login.ssh_keys.append(f"ssh-ed25519 {'A' * 68}")
    accepted = spec_decode.vm(message)
    received = vm.vm(vm.vm_message(accepted))
    if random.random() < 0.2:
        opaque = random.choice((b64encode(some_bytes(random)).decode(), random.choice(TEXTS)))
        message_to_agent = vm.vm_message(accepted)
        message_to_agent.cloud_init = opaque.encode(errors="replace").decode()
        received = vm.vm(message_to_agent)
    seed = cloud_init.seed(WorkloadId("w"), received, (cloud_init.Link("52:54:00:00:00:01"),))
    assert "user-data" in seed.files


def a_cloud_init_text(random: Random, text: str) -> str:
    import yaml

    if random.random() < 0.5:
        try:
            text = as_yaml(random, changed(random, yaml.safe_load(text)))
        except yaml.YAMLError:
            text = a_text_like(random, text)
    for _ in range(random.choice((0, 1, 1, 3))):
        text = a_text_like(random, text)
    return text.encode(errors="replace").decode()  # protobuf refuses lone surrogates


def read_certificate_request(random: Random) -> None:
    parse_csr(certificate_requests.draw(random))


def read_record(random: Random) -> None:
    kind = random.choice(KINDS)
    data = random.choice((INTACT, b'{"schema":1,"id":"w"}'))
    damaged = bytes_like(random, data)
    if random.random() < 0.1:
        damaged = b'{"schema":1,' + some_bytes(random) + b"}"
    found = records.decode(damaged, kind)
    assert data is not INTACT or damaged == INTACT, found


def read_snapshot_file(random: Random) -> None:
    header = snapshot.Header(snapshot.FORMAT, "u1", NOW, 7, "store", {"workloads": 2})
    stored = [("/workloads/w", INTACT), ("/workloads/v", INTACT)]
    data = b"".join(snapshot.write(header, stored))
    damaged = bytes_like(random, data)
    cut = random.randint(0, len(damaged))
    found = snapshot.read([damaged[:cut], damaged[cut:]])
    assert (found.header, found.records) == (header, stored), "damage was not noticed"


READERS: tuple[Callable[[Random], None], ...] = (
    read_compose_file,
    read_compose_policy,
    read_spec_file,
    read_control_spec,
    read_agent_spec,
    read_cloud_init,
    read_certificate_request,
    read_record,
    read_snapshot_file,
)


def name_of(reader: Any) -> str:
    return str(reader.__name__).removeprefix("read_")


@pytest.mark.parametrize("reader", READERS, ids=name_of)
def test_an_input_is_read_or_refused(reader: Callable[[Random], None]) -> None:
    for one in inputs(name_of(reader)):
        with one as random:
            try:
                reader(random)
            except PersysError:
                continue


def test_the_documents_from_which_fuzzers_start_are_valid() -> None:
    for document in corpus.spec_documents():
        assert specfile_read.read_documents(json.dumps(document))
    for document in corpus.compose_documents():
        assert not violations(document)
        text = json.dumps(document)
        assert compose_file.read_resolved(text, project="pp", inside=str(PLACE))
    parts: dict[str, Json] = corpus.REFUSED_PARTS["services"]["bad"]
    for key, value in parts.items():
        assert violations({"services": {"web": {key: value}}}), key
