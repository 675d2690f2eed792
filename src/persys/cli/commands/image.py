"""`persysctl image`: add VM images to nodes, list and remove them."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.live import LiveState, live_view, print_or_watch
from persys.cli.framework.output import Column, format_bytes, render_list
from persys.wire.gen.control.v1.control_pb2 import (
    ImageProgress,
    ImageView,
    ListImagesResponse,
    NodeProblem,
)

_ADDRESSES = ("http://", "https://", "file:")
_SHORT = 12

_COLUMNS = (
    Column[ImageView]("IMAGE", lambda image, now: image.name),
    Column[ImageView]("FORMAT", lambda image, now: image.format),
    Column[ImageView]("SIZE", lambda image, now: format_bytes(image.size_bytes)),
    Column[ImageView]("DISK", lambda image, now: format_bytes(image.virtual_size_bytes)),
    Column[ImageView]("NODES", lambda image, now: ",".join(image.node_ids)),
    Column[ImageView]("SHA256", lambda image, now: image.sha256[:_SHORT]),
    Column[ImageView]("USED BY", lambda image, now: ",".join(image.used_by) or BLANK),
    Column[ImageView]("AGE", lambda image, now: age(image, "added_at", now=now)),
)


def list_images(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_images(node_id=options.node),
            lambda found: _rendered(found, options),
            watch=options.watch,
        )


def add(options: Namespace) -> ExitCode:
    with ExitStack() as stack:
        client = stack.enter_context(scheduler_client(options))
        if options.source.startswith(_ADDRESSES):
            content, url, length = None, options.source, 0
        else:
            try:
                content = stack.enter_context(Path(options.source).open("rb"))
            except OSError as err:
                raise UsageError(f"{options.source}: {err.strerror}") from err
            url, length = "", os.fstat(content.fileno()).st_size
        coming = client.add_image(
            options.name,
            content,
            url=url,
            sha256=options.sha256,
            node_ids=options.node,
            size_bytes=length,
        )
        return _follow(options, coming)


def remove(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        answer = client.remove_image(options.name, node_ids=options.node)
    for node_id in answer.node_ids:
        print(f"image {options.name} is removed from node {node_id}")
    _print_problems(answer.problems)
    return ExitCode.FAILED if answer.problems else ExitCode.OK


def _rendered(found: ListImagesResponse, options: Namespace) -> str:
    _print_problems(found.problems)
    return render_list(
        found.images,
        options,
        columns=_COLUMNS,
        name=lambda image: image.name,
        empty="no images; add one with `persysctl image add`",
    )


def _follow(options: Namespace, coming: Iterable[ImageProgress]) -> ExitCode:
    ended: list[ImageProgress] = []
    states: dict[str, LiveState] = {}
    with live_view(quiet=False) as update:
        for progress in coming:
            if progress.done:
                ended.append(progress)
                states.pop(progress.node_id, None)
            else:
                states[progress.node_id] = _state(progress)
            update(states)
    for progress in ended:
        if progress.problem:
            print(f"node {progress.node_id}: {progress.problem}", file=sys.stderr)
        else:
            what = f"{format_bytes(progress.received_bytes)}, sha256 {progress.sha256}"
            print(f"image {options.name} is on node {progress.node_id} ({what})")
    return ExitCode.FAILED if any(progress.problem for progress in ended) else ExitCode.OK


def _state(progress: ImageProgress) -> LiveState:
    got = format_bytes(progress.received_bytes)
    if not progress.size_bytes:
        return LiveState("sending", got, ticks=True)
    if progress.received_bytes >= progress.size_bytes:
        return LiveState("verifying", got)
    share = progress.received_bytes / progress.size_bytes
    return LiveState("sending", f"{got} of {format_bytes(progress.size_bytes)}", share, ticks=True)


def _print_problems(problems: Iterable[NodeProblem]) -> None:
    for problem in problems:
        print(f"node {problem.node_id}: {problem.problem}", file=sys.stderr)
