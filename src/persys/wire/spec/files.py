"""Small files of a container in both contracts: users send text, agents receive bytes."""

from collections.abc import Iterable

from persys.errors import InvalidError
from persys.model.spec import FileMount
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks

MODE_MAX = 0o777
FILES_MAX = 64


def of_user(
    messages: Iterable[control_pb2.FileMount], path: str, taken: set[str]
) -> tuple[FileMount, ...]:
    """The files of a user's spec. Their paths are added to `taken`, the mount points used so far."""
    found = tuple(
        FileMount(
            checks.mount_point(message.path, f"{path}[{index}].path", taken),
            message.content.encode(),
            _mode(message.mode, f"{path}[{index}].mode"),
        )
        for index, message in enumerate(messages)
    )
    return _few(found, path)


def of_agent(
    messages: Iterable[agent_pb2.FileMount], path: str, taken: set[str]
) -> tuple[FileMount, ...]:
    found = tuple(
        FileMount(
            checks.mount_point(message.path, f"{path}[{index}].path", taken),
            message.content,
            _mode(message.mode, f"{path}[{index}].mode"),
            message.secret,
        )
        for index, message in enumerate(messages)
    )
    return _few(found, path)


def user_messages(files: Iterable[FileMount]) -> list[control_pb2.FileMount]:
    """Files of a user's spec, so the content is text."""
    return [
        control_pb2.FileMount(path=file.path, content=file.content.decode(), mode=file.mode)
        for file in files
    ]


def agent_messages(files: Iterable[FileMount]) -> list[agent_pb2.FileMount]:
    return [
        agent_pb2.FileMount(
            path=file.path, content=file.content, mode=file.mode, secret=file.secret
        )
        for file in files
    ]


def _mode(mode: int, path: str) -> int:
    if not 0 <= mode <= MODE_MAX:
        expected = "expected permissions up to 0777, for example 0400"
        raise InvalidError(path, f"is {mode:#o}; {expected}")
    return mode


def _few(files: tuple[FileMount, ...], path: str) -> tuple[FileMount, ...]:
    if len(files) > FILES_MAX:
        raise InvalidError(path, f"has {len(files)} entries; expected at most {FILES_MAX}")
    return files
