"""libvirt in memory, in place of its Python module. The real connection code of the agent uses it.

The names of constants and the class of errors are those of the real module. Domains, pools and networks
outlive the agent.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

from faults.injection import AFTERWARDS, FAULTS, HANG, REFUSED, Injector
from faults.sites import LIBVIRT

NETWORK = """<network><name>default</name>
<ip address="192.168.122.1" netmask="255.255.255.0"><dhcp/></ip></network>"""
HUGE = "x" * 4_000_000
HUGE_COUNT = 20_000


class MemoryLibvirt:
    """The daemon."""

    def __init__(self) -> None:
        self.domains: dict[str, Domain] = {}
        self.pools: dict[str, Pool] = {}
        self.network = Network(NETWORK)
        self.removed: list[str] = []
        self.count = 0


class Domain:
    def __init__(self, libvirt: MemoryLibvirt, xml: str) -> None:
        self._libvirt = libvirt
        self.xml = xml
        root = ET.fromstring(xml)  # written by the agent
        self._name, self.uuid = root.findtext("name", ""), root.findtext("uuid", "")
        self.number = -1
        self.is_paused = False
        self._ended = 1  # VIR_DOMAIN_SHUTOFF_SHUTDOWN

    def crash(self) -> None:
        self.number, self._ended = -1, 3  # VIR_DOMAIN_SHUTOFF_CRASHED

    def name(self) -> str:
        return self._name

    def UUIDString(self) -> str:  # noqa: N802
        return self.uuid

    def XMLDesc(self) -> str:  # noqa: N802
        return self.xml

    def ID(self) -> int:  # noqa: N802
        return self.number

    def state(self) -> tuple[int, int]:
        if self.number < 0:
            return 5, self._ended
        return (3, 1) if self.is_paused else (1, 0)

    def diskErrors(self) -> dict[str, int]:  # noqa: N802
        return {}

    def resume(self) -> None:
        self.is_paused = False

    def isActive(self) -> bool:  # noqa: N802
        return self.number >= 0

    def create(self) -> None:
        self._libvirt.count += 1
        self.number = self._libvirt.count

    def shutdownFlags(self, _flags: int) -> None:  # noqa: N802
        """The guest ignores the power button."""

    def destroy(self) -> None:
        self.number = -1

    def undefineFlags(self, _flags: int) -> None:  # noqa: N802
        self._libvirt.removed.append(f"machine {self._name}")
        self._libvirt.domains.pop(self.uuid, None)

    def agentSetResponseTimeout(self, _seconds: int, _flags: int) -> None:  # noqa: N802
        """The guest agent responds at once."""

    def interfaceAddresses(self, _source: int, _flags: int) -> dict[str, Any]:  # noqa: N802
        return {}


class Volume:
    def __init__(self, pool: "Pool", xml: str) -> None:
        root = ET.fromstring(xml)  # written by the agent
        self._pool = pool
        self._name = root.findtext("name", "")
        self.capacity = int(root.findtext("capacity", "0"))
        Path(self.path()).write_bytes(b"disk")

    def name(self) -> str:
        return self._name

    def path(self) -> str:
        return str(self._pool.directory / self._name)

    def info(self) -> tuple[int, int, int]:
        return 0, self.capacity, 0

    def resize(self, size: int) -> None:
        self.capacity = size

    def delete(self) -> None:
        self._pool.removed.append(f"disk {self._name}")
        del self._pool.volumes[self._name]
        Path(self.path()).unlink()


class Pool:
    def __init__(self, xml: str, libvirt: MemoryLibvirt, module: Any) -> None:
        self.xml = xml
        root = ET.fromstring(xml)  # written by the agent
        self._name = root.findtext("name", "")
        self.directory = Path(root.findtext("target/path", ""))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.volumes: dict[str, Volume] = {}
        self.removed = libvirt.removed
        self._module = module

    def name(self) -> str:
        return self._name

    def XMLDesc(self) -> str:  # noqa: N802
        return self.xml

    def isActive(self) -> bool:  # noqa: N802
        return True

    def autostart(self) -> bool:
        return True

    def setAutostart(self, _wanted: bool) -> None: ...  # noqa: N802

    def create(self) -> None: ...

    def refresh(self) -> None: ...

    def connect(self) -> "Pool":
        return self

    def getURI(self) -> str:  # noqa: N802
        return "qemu:///system"

    def info(self) -> tuple[int, int, int, int]:
        return 2, 1 << 40, 0, 1 << 40

    def createXML(self, xml: str) -> Volume:  # noqa: N802
        volume = Volume(self, xml)
        self.volumes[volume.name()] = volume
        return volume

    def listAllVolumes(self) -> list[Volume]:  # noqa: N802
        return list(self.volumes.values())

    def storageVolLookupByName(self, name: str) -> Volume:  # noqa: N802
        if name not in self.volumes:
            raise error(self._module, "VIR_ERR_NO_STORAGE_VOL", name)
        return self.volumes[name]


class Network:
    def __init__(self, xml: str) -> None:
        self.root = ET.fromstring(xml)  # of this file

    def name(self) -> str:
        return "default"

    def isActive(self) -> bool:  # noqa: N802
        return True

    def isPersistent(self) -> bool:  # noqa: N802
        return True

    def XMLDesc(self) -> str:  # noqa: N802
        return ET.tostring(self.root, encoding="unicode")

    def update(self, command: int, _section: int, _index: int, xml: str, _flags: int) -> None:
        dhcp = self.root.find("./ip/dhcp")
        assert dhcp is not None
        host = ET.fromstring(xml)  # written by the agent
        if command == 3:  # VIR_NETWORK_UPDATE_COMMAND_ADD_LAST
            dhcp.append(host)
            return
        for found in dhcp.findall("host"):
            if found.get("mac") == host.get("mac"):
                dhcp.remove(found)


class Connection:
    """In place of virConnect."""

    def __init__(self, libvirt: MemoryLibvirt, module: Any) -> None:
        self._libvirt = libvirt
        self._module = module

    def isAlive(self) -> bool:  # noqa: N802
        return True

    def registerCloseCallback(self, _callback: object, _opaque: None) -> None: ...  # noqa: N802

    def unregisterCloseCallback(self) -> None: ...  # noqa: N802

    def domainEventRegisterAny(self, *_options: object) -> None: ...  # noqa: N802

    def close(self) -> None: ...

    def getLibVersion(self) -> int:  # noqa: N802
        return 9_000_000

    def getDomainCapabilities(self, *_options: object) -> str:  # noqa: N802
        return ""

    def defineXML(self, xml: str) -> None:  # noqa: N802
        domain = Domain(self._libvirt, xml)
        self._libvirt.domains[domain.uuid] = domain

    def lookupByUUIDString(self, uuid: str) -> Domain:  # noqa: N802
        if uuid not in self._libvirt.domains:
            raise error(self._module, "VIR_ERR_NO_DOMAIN", uuid)
        return self._libvirt.domains[uuid]

    def lookupByName(self, name: str) -> Domain:  # noqa: N802
        for domain in self._libvirt.domains.values():
            if domain.name() == name:
                return domain
        raise error(self._module, "VIR_ERR_NO_DOMAIN", name)

    def listAllDomains(self) -> list[Domain]:  # noqa: N802
        return list(self._libvirt.domains.values())

    def getAllDomainStats(self, *_options: object) -> list[tuple[Domain, dict[str, Any]]]:  # noqa: N802
        return [(domain, {"cpu.time": 1}) for domain in self.listAllDomains() if domain.isActive()]

    def listAllNetworks(self) -> list[Network]:  # noqa: N802
        return [self._libvirt.network]

    def networkLookupByName(self, _name: str) -> Network:  # noqa: N802
        return self._libvirt.network

    def listAllStoragePools(self, _flags: int = 0) -> list[Pool]:  # noqa: N802
        return list(self._libvirt.pools.values())

    def storagePoolLookupByName(self, name: str) -> Pool:  # noqa: N802
        if name not in self._libvirt.pools:
            raise error(self._module, "VIR_ERR_NO_STORAGE_POOL", name)
        return self._libvirt.pools[name]

    def storagePoolDefineXML(self, xml: str) -> Pool:  # noqa: N802
        pool = Pool(xml, self._libvirt, self._module)
        self._libvirt.pools[pool.name()] = pool
        return pool


def error(module: Any, code: str, text: str) -> Exception:
    """A libvirtError, as the binding creates it from an error of the library."""
    created: Exception = module.libvirtError(text)
    created.err = (getattr(module, code), 0, text, 0, "", "", "", 0, 0)  # type: ignore[attr-defined]
    return created


def module_of(libvirt: MemoryLibvirt, real: ModuleType) -> tuple[ModuleType, "FaultyConnection"]:
    """In place of the module `libvirt`, with the constants of the real one; and its connection."""
    created = ModuleType("libvirt")
    names = [name for name in dir(real) if name.startswith("VIR_") or name == "libvirtError"]
    for name in names:
        setattr(created, name, getattr(real, name))
    connection = FaultyConnection(Connection(libvirt, created), created)
    created.__dict__.update(
        open=lambda _uri: connection,
        registerErrorHandler=lambda *_options: None,
        virEventRegisterDefaultImpl=lambda: None,
    )
    return created, connection


class FaultyConnection:
    """In front of a connection: each call fails while `kind` is set."""

    def __init__(self, connection: Connection, module: Any) -> None:
        self._connection = connection
        self._module = module
        self.kind = ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        return partial(self._call, self.kind, found) if self.kind and name != "isAlive" else found

    def _call(self, kind: str, found: Callable[..., Any], *words: Any) -> Any:
        if kind in FAULTS and kind != AFTERWARDS:
            raise FAULTS[kind]()
        if kind == REFUSED:
            raise error(
                self._module, "VIR_ERR_OPERATION_FAILED", "it failed (injected by the test)"
            )
        result = found(*words)
        if kind == AFTERWARDS:
            raise FAULTS[kind]()
        return _oversized(result)


def _oversized(result: Any) -> Any:
    match result:
        case [first, *_]:
            return [first] * HUGE_COUNT
        case Domain():
            return _LargeDomain(result)
        case _:
            return result


class _LargeDomain:
    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    def XMLDesc(self) -> str:  # noqa: N802
        return self._domain.xml.replace("</domain>", f"<x>{HUGE}</x></domain>")


def threads_of(injector: Injector, connection: FaultyConnection) -> type:
    """In place of threading.Thread: the work of a thread is done at once, never, or fails."""

    class InlineThread:
        def __init__(
            self, *, target: Callable[[], object], name: str = "", daemon: bool = True
        ) -> None:
            assert name == "libvirt", "nothing else begins threads here"
            assert daemon
            self._target = target

        def start(self) -> None:
            if self._target.__qualname__.startswith("_run_events"):
                return  # there are no events
            kind = injector.fault_of(LIBVIRT)
            if kind == HANG:
                return
            connection.kind = kind
            try:
                self._target()
            finally:
                connection.kind = ""

    return InlineThread
