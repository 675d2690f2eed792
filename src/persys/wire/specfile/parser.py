"""Parses spec files (YAML with one or more documents, or JSON) into workloads, sets, jobs, services and node
pools.

Two formats are accepted. The flat format has `id` and the fields of the spec at the top level; its `status`,
which `workload get -o yaml` prints, is ignored. The format of the contract has `workload_id` and the spec
under `spec`. A document without a spec changes only the desired state of its workload. Views of workloads and
Compose files are accepted too, see `document.py`.

A document with `kind: set`, `kind: job`, `kind: service` or `kind: nodepool` is one. Without a kind, a
workload with a key of a set or of a job is a set or a job.
"""

import json
import re
from collections.abc import Iterator

from google.protobuf.message import Message

from persys.core.bounded_yaml import (
    NULL_TAG,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    YamlError,
    YamlLimits,
    compose_all,
)
from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.model.ids import workload_id
from persys.wire.control.messages import desired
from persys.wire.control.spec_decode import workload_rules, workload_spec
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks, health
from persys.wire.spec.checks import PORT_MAX
from persys.wire.specfile import job_file, pool_file, service_file, set_file
from persys.wire.specfile.document import (
    child,
    compose_document,
    compose_error,
    has_field,
    intent_of_view,
    is_compose,
    is_view,
    located,
    position_of_field,
)
from persys.wire.specfile.overrides import (
    UNCHANGED,
    Overrides,
    assign,
    compose_variables,
    interpolate,
)
from persys.wire.specfile.spec_documents import (
    Document,
    JobDocument,
    PoolDocument,
    ServiceDocument,
    SetDocument,
    SpecDocument,
)
from persys.wire.specfile.strict import (
    NOWHERE,
    Position,
    SpecFileError,
    entries,
    error_at,
    fill,
    position_of,
    text_of,
    unknown_key,
)
from persys.wire.specfile.value_readers import seconds_of

_PORT = re.compile(r"(?:(?P<host>\d+):)?(?P<container>\d+)(?:/(?P<protocol>tcp|udp))?")

_OF_SPEC = tuple(control_pb2.WorkloadSpec.DESCRIPTOR.fields_by_name)
_STOP_AFTER = "stop_after"  # a duration; the contract has seconds
_STATUS = "status"
_KUBERNETES = "apiVersion"
_OF_REQUEST = ("revision_id", "desired_state")
_FLAT = ("id", *_OF_SPEC, _STOP_AFTER, *_OF_REQUEST)
_KINDS = (set_file.KIND, job_file.KIND, service_file.KIND, pool_file.KIND)
_KIND_OF_KEY = {
    **dict.fromkeys(set_file.KEYS, set_file.KIND),
    **dict.fromkeys(job_file.KEYS, job_file.KIND),
}
_OF_REQUEST_IN_CAMEL = ("revisionId", "desiredState")
_ONLY_ON_THE_WIRE = frozenset({"workload_id", "workloadId", "spec"})
_INT64_MAX = 2**63 - 1
# A file on the command line may contain thousands of workloads; servers pass smaller limits.
FILE_LIMITS = YamlLimits(bytes_max=16 * 1024 * 1024, nodes_max=1_000_000, documents_max=20_000)


def read_spec_file(
    text: str,
    limits: YamlLimits = FILE_LIMITS,
    *,
    stack_id: str = "",
    directory: str = "",
) -> list[SpecDocument]:
    """All workloads in the file. Raises SpecFileError for the first error, and for any other document."""
    workloads: list[SpecDocument] = []
    for document in read_documents(text, limits, stack_id=stack_id, directory=directory):
        if not isinstance(document, SpecDocument):
            raise error_at(document.node, "kind", f"a {document.noun} is not a workload")
        workloads.append(document)
    return workloads


def read_documents(
    text: str,
    limits: YamlLimits = FILE_LIMITS,
    *,
    stack_id: str = "",
    directory: str = "",
    overrides: Overrides = UNCHANGED,
    has_positions: bool = True,
) -> list[Document]:
    """All documents of the file. Raises SpecFileError for the first error.

    The id of a Compose file is `stack_id`, else the file's `name`, else `directory`. Without `has_positions`
    errors have none, because the user did not write the text.
    """
    nodes, positions = _parsed(text, limits)
    positions = positions and has_positions
    found: dict[tuple[str, str], Document] = {}
    for node in nodes:
        line = node.start_mark.line + 1 if positions else 0
        try:
            if len(nodes) == 1 and is_compose(node):
                document: Document = _stack(text, node, stack_id, directory, overrides)
            else:
                document = _document(node, text, line, overrides)
        except SpecFileError as err:
            at = err.at if positions or err.at.option else NOWHERE
            raise SpecFileError(err.field, err.problem, at=at) from None
        except InvalidError as err:
            at, problem = located(node, err.field, err.problem)
            at = at if positions or at.option else NOWHERE
            raise SpecFileError(err.field, problem, at=at) from None
        key = (document.names, document.id)
        if key in found:
            at = position_of(node) if positions else NOWHERE
            raise SpecFileError("id", f"{document.id!r} is used twice", at=at)
        found[key] = document
    if not found:
        raise SpecFileError("file", "contains no workload")
    return list(found.values())


def _document(node: Node, text: str, line: int, overrides: Overrides) -> Document:
    if overrides.variables is not None:
        interpolate(node, text, overrides.variables)
    assign(node, overrides.assignments)
    kind = _kind(node)
    if kind == pool_file.KIND:
        return PoolDocument(pool_file.read_pool(node), line, node)
    if kind == service_file.KIND:
        return ServiceDocument(service_file.read_service(node), line, node)
    if not kind:
        return SpecDocument(_request(node), line, node)
    own, others = _split(node, kind)
    request = _request(others)
    if request.revision_id:
        raise InvalidError("revision_id", f"is not used by a {kind}")
    if kind == set_file.KIND:
        return SetDocument(set_file.read_set(own, request), line, node)
    if request.desired_state:
        raise InvalidError("desired_state", "is not used by a job; see `persysctl job suspend`")
    return JobDocument(job_file.read_job(own, request), line, node)


def _kind(node: Node) -> str:
    """The kind of a document; empty for a workload, and for a kind that is not known."""
    named = child(node, "kind")
    if named is not None:
        return named[0].value if named[0].value in _KINDS else ""
    keys = node.value if isinstance(node, MappingNode) else []
    return next((kind for key, _ in keys if (kind := _KIND_OF_KEY.get(key.value))), "")


def _split(node: Node, kind: str) -> tuple[MappingNode, MappingNode]:
    """The keys of the set or job, and those of its workload."""
    own: list[tuple[ScalarNode, Node]] = []
    others: list[tuple[ScalarNode, Node]] = []
    for key, value in entries(node, ""):
        belongs_to = _KIND_OF_KEY.get(key.value, kind)
        if belongs_to != kind:
            raise error_at(key, key.value, f"is a key of a {belongs_to}; the document is a {kind}")
        if key.value != "kind":
            (own if key.value in _KIND_OF_KEY else others).append((key, value))
    return (
        MappingNode(node.tag, own, node.start_mark, node.end_mark),
        MappingNode(node.tag, others, node.start_mark, node.end_mark),
    )


def _stack(
    text: str, node: Node, stack_id: str, directory: str, overrides: Overrides
) -> SpecDocument:
    """A Compose file. `--set` changes the fields of its workload, for example `compose.env.NAME`."""
    env, missing = compose_variables(node, text, overrides)
    document = compose_document(text, node, stack_id=stack_id, directory=directory, env=env)
    assign(document, overrides.assignments)
    missing = [one for one in missing if not has_field(document, f"compose.env['{one.name}']")]
    if overrides.variables is not None and missing:
        name, at = missing[0]
        raise SpecFileError(name, "the variable is not set and has no default", at=at)
    if kind := _kind(document):
        key = next(key for key, _ in document.value if key.value in (*_KIND_OF_KEY, "kind"))
        raise error_at(
            key, key.value, f"a Compose file is one stack; write a {kind} as a spec file"
        )
    try:
        request = _request(document)
    except InvalidError as err:
        at = err.at if isinstance(err, SpecFileError) else position_of_field(document, err.field)
        if at.option:
            raise SpecFileError(err.field, err.problem, at=at) from None
        found = compose_error(err, node)
        unset = ", ".join(one.name for one in missing)
        hint = f"; variables that are not set: {unset} (see --env-file)" if unset else ""
        raise SpecFileError(found.field, found.problem + hint, at=found.at) from None
    return SpecDocument(request, node.start_mark.line + 1, document, node, missing)


def _parsed(text: str, limits: YamlLimits) -> tuple[list[Node], bool]:
    """The documents, and whether their positions are those of the text."""
    rewritten = _rewritten_json(text) if len(text) <= limits.bytes_max else None
    if rewritten is None:
        return list(_documents(text, limits)), True
    try:
        return list(_documents(text, limits)), True
    except SpecFileError:
        # YAML refuses tabs and some escapes that JSON allows.
        return list(_documents(rewritten, limits)), False


def _rewritten_json(text: str) -> str | None:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _documents(text: str, limits: YamlLimits) -> Iterator[Node]:
    try:
        roots = compose_all(text, limits)
    except YamlError as err:
        at = Position(err.line, err.column)
        raise SpecFileError(err.field or "file", err.problem, at=at) from err
    for root in roots:
        if isinstance(root, SequenceNode):
            yield from root.value
        elif root.tag != NULL_TAG:
            yield root


def _request(node: Node) -> control_pb2.ApplyWorkloadRequest:
    request = control_pb2.ApplyWorkloadRequest()
    if is_view(node):
        node = intent_of_view(node)
    pairs = list(entries(node, ""))
    if {key.value for key, _ in pairs} & _ONLY_ON_THE_WIRE:
        fill(request, node, "", short_forms=SHORT_FORMS)
        _check(request, flat=False)
    else:
        _fill_flat(request, node, pairs)
        _check(request, flat=True)
    return request


def _fill_flat(
    request: control_pb2.ApplyWorkloadRequest,
    node: Node,
    pairs: list[tuple[ScalarNode, Node]],
) -> None:
    def part(*names: str) -> MappingNode:
        chosen = [pair for pair in pairs if pair[0].value in names]
        return MappingNode(node.tag, chosen, node.start_mark, node.end_mark)

    _refuse_other_kinds(pairs)
    for key, value in pairs:
        if key.value == _STATUS and isinstance(value, MappingNode):
            continue
        if key.value not in (*_FLAT, *_OF_REQUEST_IN_CAMEL):
            raise unknown_key(key, "", (*_FLAT, *_KIND_OF_KEY))
        if key.value == "id":
            request.workload_id = text_of(value, "id")
    fill(request, part(*_OF_REQUEST, *_OF_REQUEST_IN_CAMEL), "")
    of_spec = part(*_OF_SPEC)
    if of_spec.value:
        request.spec.SetInParent()
        fill(request.spec, of_spec, "", short_forms=SHORT_FORMS)
    for key, value in pairs:
        if key.value == _STOP_AFTER:
            _stop_after(request.spec, key, value)


def _refuse_other_kinds(pairs: list[tuple[ScalarNode, Node]]) -> None:
    for key, value in pairs:
        if key.value == _KUBERNETES:
            raise error_at(
                key, key.value, "a Kubernetes manifest; expected a workload or a Compose file"
            )
        if key.value == "kind":
            shown = str(value.value)[:40] if isinstance(value, ScalarNode) else "a collection"
            expected = f"expected {', '.join(_KINDS[:-1])} or {_KINDS[-1]}"
            raise error_at(value, "kind", f"invalid kind {shown!r}: {expected}")


def _stop_after(spec: control_pb2.WorkloadSpec, key: ScalarNode, value: Node) -> None:
    if spec.stop_after_seconds:
        raise error_at(key, _STOP_AFTER, "conflicts with stop_after_seconds; set only one of them")
    spec.stop_after_seconds = min(seconds_of(value, _STOP_AFTER), _INT64_MAX)


def _check(request: control_pb2.ApplyWorkloadRequest, *, flat: bool) -> None:
    """Run the scheduler's checks that need no cluster, so that a file is applied completely or not at all."""
    workload_id(request.workload_id, field="id" if flat else "workload_id")
    if request.desired_state:
        desired(request.desired_state)
        if not request.HasField("spec"):
            return
    try:
        workload_spec(request.spec)
        workload_rules(request.spec)
        checks.networks(request.spec.networks, "spec.networks")
    except InvalidError as err:
        field = err.field.removeprefix("spec.") if flat else err.field
        raise InvalidError(field, err.problem) from None
    # Third-party schedulers require the type.
    request.spec.type = request.spec.type or request.spec.WhichOneof("workload") or "vm"


def port(path: str, text: str, message: Message) -> None:
    """ "80" lets the node choose the host port."""
    assert isinstance(message, control_pb2.Port)
    found = _PORT.fullmatch(text)
    if found is None:
        expected = 'expected "8080:80", "8080:80/udp" or "80"'
        raise InvalidError(path, f"invalid port {text!r}: {expected}")
    host, container = whole_number(found["host"] or "0"), whole_number(found["container"])
    if host is None or container is None or not 1 <= container <= PORT_MAX or host > PORT_MAX:
        raise InvalidError(path, f"invalid port {text[:40]!r}: expected ports from 1 to {PORT_MAX}")
    message.host_port = host
    message.container_port = container
    message.protocol = found["protocol"] or "tcp"


def volume(path: str, text: str, message: Message) -> None:
    assert isinstance(message, control_pb2.VolumeMount)
    parts = text.split(":")
    mode = parts[2] if len(parts) == 3 else "rw"
    if (
        len(parts) not in (2, 3)
        or mode not in ("ro", "rw")
        or not all(part.startswith("/") for part in parts[:2])
    ):
        raise InvalidError(
            path,
            f'invalid volume {text!r}: expected "/host/path:/container/path", with :ro for read-only',
        )
    message.host_path, message.container_path = parts[:2]
    message.read_only = mode == "ro"


SHORT_FORMS = {"Port": port, "VolumeMount": volume, "HealthCheck": health.short}
