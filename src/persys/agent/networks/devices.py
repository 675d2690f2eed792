"""Reads and changes the network devices and the firewall of the host with `ip`, `bridge` and `nft`.

Each call runs a program with a deadline, so that nothing blocks the event loop. `link_events` reads changes
of devices from a netlink socket.
"""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from persys.core.networks.devices import Changes, Forward, Link
from persys.core.networks.firewall import ruleset
from persys.errors import UnavailableError
from persys.infra.subprocesses import ProgramResult, run
from persys.model.ids import NodeId
from persys.model.network import NetworkId, NodeNetwork, Peer

DEADLINE_SECONDS = 20.0
ROUTES_MAX = 64
_PROGRAMS = ("ip", "bridge", "nft", "nsenter", "unshare")
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin"  # may be missing in PATH
_OUTPUT_LENGTH_MAX = 400
_RTMGRP_LINK = 1
_EVENT_BYTES_MAX = 65536
_GATHER_SECONDS = 0.05  # a start of a container changes several devices
# Creates one of each device in a network namespace of its own, and a complete firewall.
_TRIAL = (
    "ip link add pnb1 type bridge && "
    "ip link add pnx1 type vxlan id 1 dstport 8472 nolearning && "
    "ip link set pnx1 master pnb1 && ip link set pnx1 type bridge_slave learning off flood off && "
    "nft -f -"
)
_TRIAL_NETWORK = NodeNetwork(
    NetworkId("trial"),
    1,
    "10.128.0.0/22",
    ("10.128.0.0/26",),
    peers=(Peer(NodeId("peer"), "192.0.2.1", ("10.128.0.64/26",)),),
)


class HostError(UnavailableError):
    """A program failed. Nothing is known about what it has changed."""


class NetworkHost:
    def __init__(self) -> None:
        self._path = f"{os.environ.get('PATH', '')}:{_SYSTEM}"

    async def problem(self) -> str:
        """Why this host cannot have networks; "" if it can."""
        missing = [name for name in _PROGRAMS if shutil.which(name, path=self._path) is None]
        if missing:
            return f"not installed: {', '.join(missing)}"
        firewall = ruleset([_TRIAL_NETWORK], {}, "persys_trial").encode()
        try:
            await self._run("unshare", "--net", "sh", "-c", _TRIAL, stdin=firewall)
        except HostError as err:
            return str(err)
        return ""

    async def links(self) -> dict[str, Link]:
        """All devices by name, with their IPv4 addresses."""
        found = await self._json("ip", "-j", "-d", "address", "show")
        links = (_link(one) for one in found if one.get("ifname"))
        return {link.name: link for link in links}

    async def links_of(self, pid: int) -> dict[str, int]:
        """The devices of a process in a network namespace of its own: the index of the other end by MAC.

        A MAC that two devices have is left out.
        """
        namespace = f"--net=/proc/{pid}/ns/net"
        found = await self._json("nsenter", namespace, "ip", "-j", "link", "show")
        ends: dict[str, list[int]] = {}
        for one in found:
            if one.get("link_index"):
                ends.setdefault(str(one.get("address")), []).append(int(one["link_index"]))
        return {mac: indexes[0] for mac, indexes in ends.items() if len(indexes) == 1}

    async def forwards(self, vxlan: str) -> list[Forward]:
        found = await self._json("bridge", "-j", "fdb", "show", "dev", vxlan)
        return [
            Forward(str(one["mac"]), str(one.get("dst", "")))
            for one in found
            if "dst" in one or one.get("state") == "static"
        ]

    async def apply(self, changes: Changes) -> None:
        if changes.links:
            await self._run("ip", "-batch", "-", stdin="\n".join((*changes.links, "")).encode())
        if changes.forwards:
            lines = "\n".join((*changes.forwards, "")).encode()
            await self._run("bridge", "-batch", "-", stdin=lines)

    async def apply_firewall(self, text: str) -> None:
        """Replace the tables in one transaction."""
        await self._run("nft", "-f", "-", stdin=text.encode())

    async def has_firewall(self, table: str) -> bool:
        """Whether both tables exist."""
        found = (await self._run("nft", "list", "tables")).out.splitlines()
        return {f"table bridge {table}", f"table inet {table}"} <= set(found)

    async def routes(self, own: Sequence[str]) -> tuple[str, ...]:
        """The IPv4 routes of the host, without those of the devices `own`."""
        found = await self._json("ip", "-j", "-4", "route", "show")
        routes = {
            str(one["dst"])
            for one in found
            if one.get("dst", "default") != "default" and one.get("dev") not in own
        }
        return tuple(sorted(one if "/" in one else f"{one}/32" for one in routes))[:ROUTES_MAX]

    async def _json(self, *command: str) -> list[dict[str, Any]]:
        result = await self._run(*command)
        try:
            found = json.loads(result.out or "[]")
        except ValueError as err:
            raise HostError(f"unexpected output of {command[0]}: {err}") from err
        return [one for one in found if isinstance(one, dict)]

    async def _run(self, *command: str, stdin: bytes = b"") -> ProgramResult:
        program = command[0]
        found = shutil.which(program, path=self._path)
        if found is None:
            raise HostError(f"{program} is not installed on this node")
        env = {"PATH": self._path, "LC_ALL": "C"}
        try:
            ran = await run([found, *command[1:]], env=env, deadline=DEADLINE_SECONDS, stdin=stdin)
        except TimeoutError as err:
            raise HostError(f"{program} did not finish within {DEADLINE_SECONDS:g} s") from err
        except OSError as err:
            raise HostError(f"cannot run {program}: {err.strerror}") from err
        if not ran.ok:
            output = " ".join((ran.err or ran.out).split())[-_OUTPUT_LENGTH_MAX:]
            raise HostError(f"{program} exited with code {ran.code}: {output or 'no output'}")
        return ran


async def link_events() -> AsyncIterator[None]:
    """An item after each change of devices; changes that follow each other are one item."""
    loop = asyncio.get_running_loop()
    with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)) as opened:
        opened.setblocking(False)
        opened.bind((0, _RTMGRP_LINK))
        while True:
            try:
                await loop.sock_recv(opened, _EVENT_BYTES_MAX)
                await asyncio.sleep(_GATHER_SECONDS)
                while opened.recv(_EVENT_BYTES_MAX):
                    pass
            except BlockingIOError:
                pass
            except OSError as err:
                if err.errno != 105:  # ENOBUFS: some events are lost, which is an event too
                    raise
            yield


def _link(found: Mapping[str, Any]) -> Link:
    info = found.get("linkinfo") or {}
    data = info.get("info_data") or {}
    is_vxlan = info.get("info_kind") == "vxlan"
    return Link(
        name=str(found["ifname"]),
        index=int(found["ifindex"]),
        kind=str(info.get("info_kind", "")),
        mac=str(found.get("address", "")),
        mtu=int(found.get("mtu", 0)),
        master=str(found.get("master", "")),
        alias=str(found.get("ifalias", "")),
        is_up="UP" in found.get("flags", ()),
        addresses=tuple(
            f"{one['local']}/{one['prefixlen']}"
            for one in found.get("addr_info", ())
            if one.get("family") == "inet"
        ),
        number=int(data.get("id", 0)) if is_vxlan else 0,
        port=int(data.get("port", 0)) if is_vxlan else 0,
        learns=bool(data.get("learning", True)) if is_vxlan else False,
        peer_index=int(found.get("link_index", 0)),
    )
