"""An image that virtual machines start from, as the node that has it knows it."""

from datetime import datetime

from msgspec import Struct


class Image(Struct, frozen=True):
    """`name` is one of the node's store, or the address that the image was fetched from."""

    name: str
    sha256: str  # of the whole file
    format: str  # qcow2, raw
    size_bytes: int
    virtual_size_bytes: int  # what a disk made from it has at least
    added_at: datetime
