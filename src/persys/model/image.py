"""A VM image on a node."""

from datetime import datetime

from msgspec import Struct


class Image(Struct, frozen=True):
    """`name` is a name in the image store of the node, or the URL of the image."""

    name: str
    sha256: str  # of the whole file
    format: str  # qcow2, raw
    size_bytes: int
    virtual_size_bytes: int  # the minimum size of a disk created from it
    added_at: datetime
