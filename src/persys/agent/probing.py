"""One look at a port of a workload, from its host. The answer is what is wrong, "" if nothing is."""

import asyncio
import re

from persys.model.spec import HealthCheck, HealthType

_STATUS_LINE = re.compile(rb"HTTP/\d\.\d (\d{3})\b")
_LINE_BYTES_MAX = 4096
_WELL = range(200, 400)


async def probe(check: HealthCheck, address: str, *, deadline: float) -> str:
    where = f"port {check.port}"
    if not address:
        return f"{where}: the container has no address"
    try:
        async with asyncio.timeout(deadline):
            reader, writer = await asyncio.open_connection(
                address, check.port, limit=_LINE_BYTES_MAX
            )
            try:
                if check.type is HealthType.HTTP:
                    return await _ask(check, address, reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        return f"{where}: no answer within {deadline:g} s"
    except OSError as err:
        return f"{where}: {err.strerror or 'the connection broke'}"
    return ""


async def _ask(
    check: HealthCheck,
    address: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    asked = f"GET {check.path}"
    writer.write(
        f"{asked} HTTP/1.1\r\nHost: {address}:{check.port}\r\nUser-Agent: persys-agent\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n".encode()
    )
    await writer.drain()
    try:
        line = await reader.readline()
    except ValueError:  # longer than any status line
        line = b""
    found = _STATUS_LINE.match(line)
    if found is None:
        return f"{asked} on port {check.port}: the answer is not HTTP"
    status = int(found[1])
    return "" if status in _WELL else f"{asked} on port {check.port}: status {status}"
