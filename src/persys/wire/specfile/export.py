"""Workloads and node pools as documents of spec files: what `get -o yaml` prints and `apply` accepts.

A document has the fields that are set, and the rest of the view as `status`, which `apply` ignores. Applied
unedited, it changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from persys.core import bounded_yaml
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.pool_file import KIND
from persys.wire.specfile.strict import OCTAL_FIELDS

_DESIRED_STATES = ("Running", "Stopped")
_OF_INTENT = ("workload_id", "spec", "desired_state", "type")


def workload_text(view: control_pb2.WorkloadView, *, status: bool = True) -> str:
    """The YAML of one workload. Without `status` it has only what a user can change."""
    return _text(workload_document(view), view, _OF_INTENT if status else None)


def workload_document(view: control_pb2.WorkloadView) -> dict[str, object]:
    """In the flat format. A workload that is being deleted has no desired state that could be applied."""
    document: dict[str, object] = {"id": view.workload_id}
    if view.desired_state in _DESIRED_STATES:
        document["desired_state"] = view.desired_state
    return document | fields_of(view.spec)


def pool_text(view: control_pb2.NodePoolView, *, status: bool = True) -> str:
    return _text(pool_document(view.spec), view, ("spec",) if status else None)


def pool_document(spec: control_pb2.NodePoolSpec) -> dict[str, object]:
    fields = fields_of(spec)
    document: dict[str, object] = {"kind": KIND}
    software: dict[str, object] = {}
    for name, value in fields.items():
        if name.endswith("_seconds"):
            document[name.removesuffix("_seconds")] = f"{value}s"
        elif name.startswith("software_"):
            software[name.removeprefix("software_")] = value
            document["software"] = software
        else:
            document[name] = value
    return document


def fields_of(message: Message) -> dict[str, Any]:
    """The fields that are set, with the names and types of spec files."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = dict(sorted(value.items()))
        elif field.is_repeated:
            found[field.name] = [_plain(field.full_name, item) for item in value]
        else:
            found[field.name] = _plain(field.full_name, value)
    return found


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Message):
        return fields_of(value)
    return f"0{value:o}" if name in OCTAL_FIELDS else value


def _text(document: Mapping[str, object], view: Message, of_intent: tuple[str, ...] | None) -> str:
    text = bounded_yaml.dump(document, blocks=True)
    if of_intent is None:
        return text
    rest = {
        name: value
        for name, value in MessageToDict(view, preserving_proto_field_name=True).items()
        if name not in of_intent
    }
    return text + bounded_yaml.dump({"status": rest}, blocks=True)
