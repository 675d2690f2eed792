"""One HTTP or TCP probe of a port of a workload. Returns the problem; "" if it is healthy."""

import asyncio
import re

from persys.model.spec import HealthCheck, HealthType

_STATUS_LINE = re.compile(rb"HTTP/\d\.\d (\d{3})\b")
_LINE_BYTES_MAX = 4096
_HEALTHY = range(200, 400)


async def probe(check: HealthCheck, address: str, *, deadline: float) -> str:
    where = f"port {check.port}"
    if not address:
        return f"{where}: the container has no IP address"
    try:
        async with asyncio.timeout(deadline):
            reader, writer = await asyncio.open_connection(
                address, check.port, limit=_LINE_BYTES_MAX
            )
            try:
                if check.type is HealthType.HTTP:
                    return await _probe_http(check, address, reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        return f"{where}: no response within {deadline:g} s"
    except OSError as err:
        return f"{where}: {err.strerror or 'the connection was lost'}"
    return ""


async def _probe_http(
    check: HealthCheck,
    address: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    request = f"GET {check.path}"
    writer.write(
        f"{request} HTTP/1.1\r\nHost: {address}:{check.port}\r\nUser-Agent: persys-agent\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n".encode()
    )
    await writer.drain()
    try:
        line = await reader.readline()
    except ValueError:  # longer than any status line
        line = b""
    found = _STATUS_LINE.match(line)
    if found is None:
        return f"{request} on port {check.port}: the response is not HTTP"
    status = int(found[1])
    return "" if status in _HEALTHY else f"{request} on port {check.port}: status {status}"
