"""The rows of the command table."""

from typing import NamedTuple

from persys.cli.framework.arguments import Argument


class Command(NamedTuple):
    name: str
    help: str
    run: str  # module:function
    arguments: tuple[Argument, ...] = ()


class Group(NamedTuple):
    name: str
    help: str
    commands: tuple[Command, ...]
