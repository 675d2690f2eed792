"""`persysctl volume`: managed volumes and VM disks, on all nodes."""

import sys
from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import (
    Column,
    align_columns,
    code_text,
    format_bytes,
    render_list,
    render_one,
)
from persys.errors import InvalidError, NotFoundError
from persys.wire.gen.control.v1.control_pb2 import ListVolumesResponse, VolumeView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


def _limit(volume: VolumeView) -> str:
    return format_bytes(volume.size_bytes) if volume.size_bytes else "no limit"


def _used(volume: VolumeView) -> str:
    return format_bytes(volume.used_bytes) if volume.used_bytes else BLANK


_COLUMNS = (
    Column[VolumeView]("VOLUME", lambda volume, now: f"{volume.workload_id}/{volume.name}"),
    Column[VolumeView]("NODE", lambda volume, now: volume.node_id),
    Column[VolumeView]("DRIVER", lambda volume, now: volume.driver),
    Column[VolumeView]("POOL", lambda volume, now: volume.pool or BLANK),
    Column[VolumeView]("SIZE", lambda volume, now: _limit(volume)),
    Column[VolumeView]("USED", lambda volume, now: _used(volume)),
    Column[VolumeView]("STATE", lambda volume, now: code_text(volume.state)),
    Column[VolumeView]("RETAIN", lambda volume, now: volume.retain_policy, wide=True),
    Column[VolumeView]("FS", lambda volume, now: volume.fs_type or BLANK, wide=True),
    Column[VolumeView]("PATH", lambda volume, now: volume.path, wide=True),
    Column[VolumeView]("AGE", lambda volume, now: age(volume, "created_at", now=now)),
)


def list_volumes(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_volumes(node_id=options.node, workload_id=options.workload),
            lambda found: _rendered(found, options),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        for volume in _named(client, options):
            print(render_one(volume, options, describe=_described, name=_name))
    return ExitCode.OK


def delete(options: Namespace) -> ExitCode:
    workload_id, name = _parts(options.volume)
    with scheduler_client(options) as client:
        node_id = options.node or (_node_of(client, options) if client.is_gateway else "")
        client.delete_volume(workload_id, name, node_id=node_id)
    print(f"volume {options.volume} is deleted, with its data")
    return ExitCode.OK


def _node_of(client: "SchedulerClient", options: Namespace) -> str:
    """The node of the volume: a gateway needs it in the URL, a scheduler finds it itself."""
    nodes = sorted({volume.node_id for volume in _named(client, options)})
    if len(nodes) > 1:
        raise InvalidError("--node", f"is required: {options.volume} is on {', '.join(nodes)}")
    return nodes[0]


def _named(client: "SchedulerClient", options: Namespace) -> list[VolumeView]:
    workload_id, name = _parts(options.volume)
    found = client.list_volumes(node_id=options.node, workload_id=workload_id, name=name)
    _print_problems(found)
    if not found.volumes:
        raise NotFoundError("volume", options.volume)
    return list(found.volumes)


def _parts(volume: str) -> tuple[str, str]:
    workload_id, slash, name = volume.partition("/")
    if not slash or not workload_id or not name:
        raise InvalidError(
            "VOLUME",
            f"invalid volume {volume!r}: expected WORKLOAD/NAME, as listed by `volume list`",
        )
    return workload_id, name


def _name(volume: VolumeView) -> str:
    return f"{volume.node_id}/{volume.workload_id}/{volume.name}"


def _described(volume: VolumeView, now: datetime, _wide: bool) -> str:
    return align_columns(
        [[f"{column.title.capitalize()}:", column.text(volume, now)] for column in _COLUMNS]
    )


def _rendered(found: ListVolumesResponse, options: Namespace) -> str:
    _print_problems(found)
    return render_list(found.volumes, options, columns=_COLUMNS, name=_name, empty="no volumes")


def _print_problems(found: ListVolumesResponse) -> None:
    for problem in found.problems:
        print(f"node {problem.node_id} {problem.problem}", file=sys.stderr)
