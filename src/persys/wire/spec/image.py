"""VM images in both contracts."""

from collections.abc import Iterable
from datetime import UTC, datetime

from persys.errors import InvalidError
from persys.model.node import Image
from persys.model.spec import is_address
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import vm_rules

_SHA256_DIGITS = 64
_HEX = frozenset("0123456789abcdefABCDEF")


def checked_name(name: str) -> str:
    """The name of an image to add. It cannot be a URL: nodes download those automatically."""
    if not name or is_address(name):
        problem = f"invalid image name {name!r}: expected a name, for example debian-12"
        raise InvalidError("name", problem)
    return vm_rules.image(name, "name")


def checked_sha256(text: str) -> str:
    if text and (len(text) != _SHA256_DIGITS or not _HEX.issuperset(text)):
        raise InvalidError("sha256", f"is {text!r}; expected {_SHA256_DIGITS} hexadecimal digits")
    return text.lower()


def agent_view(image: Image, used_by: Iterable[str] = ()) -> agent_pb2.ImageView:
    return agent_pb2.ImageView(
        name=image.name,
        sha256=image.sha256,
        format=image.format,
        size_bytes=image.size_bytes,
        virtual_size_bytes=image.virtual_size_bytes,
        added_at=int(image.added_at.timestamp()),
        used_by=list(used_by),
    )


def control_views(
    found: Iterable[tuple[str, Iterable[agent_pb2.ImageView]]],
) -> list[control_pb2.ImageView]:
    """Merge the images of all nodes: one view per name and content, with the nodes that store it."""
    merged: dict[tuple[str, str], control_pb2.ImageView] = {}
    for node_id, views in found:
        for view in views:
            shown = merged.get((view.name, view.sha256))
            if shown is None:
                shown = merged[view.name, view.sha256] = _control_view(view)
            shown.node_ids.append(node_id)
            used_by = sorted({*shown.used_by, *view.used_by})
            del shown.used_by[:]
            shown.used_by.extend(used_by)
    return [merged[key] for key in sorted(merged)]


def _control_view(view: agent_pb2.ImageView) -> control_pb2.ImageView:
    shown = control_pb2.ImageView(
        name=view.name,
        sha256=view.sha256,
        format=view.format,
        size_bytes=view.size_bytes,
        virtual_size_bytes=view.virtual_size_bytes,
    )
    if view.added_at:
        shown.added_at.FromDatetime(datetime.fromtimestamp(view.added_at, tz=UTC))
    return shown
