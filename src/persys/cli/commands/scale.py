"""`persysctl scale`: the number of members of a set."""

from argparse import Namespace
from typing import TYPE_CHECKING

from persys.cli.commands.set_change import change_set
from persys.cli.commands.set_wait import SetGoal
from persys.cli.framework.exit_codes import UsageError
from persys.errors import NotFoundError, RefusedError
from persys.wire.gen.control.v1.control_pb2 import SetView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


def scale(options: Namespace) -> int:
    options.id, count = _id_and_count(options)

    def send(client: "SchedulerClient", set_id: str) -> SetView:
        try:
            return client.scale_set(set_id, count)
        except NotFoundError:
            raise _not_a_set(client, set_id) from None

    return change_set(options, send, f"being scaled to {count}", SetGoal.SCALED)


def _id_and_count(options: Namespace) -> tuple[str, int]:
    """`scale web 5`, `scale web=5` as with docker, `scale web --replicas 5` as with kubectl."""
    name, _, in_name = options.id.partition("=")
    given = [text for text in (in_name, options.count, options.replicas) if text]
    if len(given) != 1:
        raise UsageError(f"expected one number of members, as in `persysctl scale {name} 3`")
    text = given[0]
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise UsageError(f"invalid number of members {text!r}: expected a whole number")
    return name, int(text)


def _not_a_set(client: "SchedulerClient", name: str) -> RefusedError:
    from persys.cli.commands.workload_change import find_workload

    if find_workload(client, name) is None:
        return NotFoundError("set", name)
    return RefusedError(f"{name} is a workload: add `replicas` to its file and apply it")
