"""The log tail of a container, decoded from Docker's frame format."""

from persys.agent.runtimes.docker_engine import Engine

_LINES_MAX = 100
_ANSWER_BYTES_MAX = 256 * 1024
_HEADER_BYTES = 8
_STDERR = 2


async def tail(engine: Engine, container_id: str) -> str:
    """The last lines of standard error, or of standard output if standard error is empty."""
    for stream in ("stderr", "stdout"):
        content = await engine.read(
            f"containers/{container_id}/logs",
            params={stream: "true", "tail": str(_LINES_MAX)},
            bytes_max=_ANSWER_BYTES_MAX,
        )
        text = payloads(content).decode("utf-8", "replace").strip()
        if text:
            return text
    return ""


def payloads(content: bytes) -> bytes:
    """Frames without headers. If the beginning was cut off, decoding starts at the first whole frame."""
    start = _first_frame(content)
    parts = []
    while start + _HEADER_BYTES <= len(content):
        size = int.from_bytes(content[start + 4 : start + _HEADER_BYTES])
        start += _HEADER_BYTES
        parts.append(content[start : start + size])
        start += size
    return b"".join(parts)


def _first_frame(content: bytes) -> int:
    for start in range(len(content)):
        if content[start] <= _STDERR and content[start + 1 : start + 4] == b"\0\0\0":
            return start
    return len(content)
