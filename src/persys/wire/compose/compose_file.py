"""The requirements of a Compose file: ports, limits, privileges, data.

It is read twice. The scheduler reads the text of an inline file, which cannot refer to other files. The agent
reads the output of `docker compose config` (`resolved`): includes, extends and relative paths are resolved,
and files below the project directory (`inside`) are allowed. Unsupported features are refused both times.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from posixpath import normpath
from typing import NamedTuple

from persys.core.agent.compose_policy import first_violation, may_need_privilege, violations
from persys.core.bounded_yaml import MappingNode, ScalarNode
from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.model.spec import Port, RestartPolicy, StackNeeds
from persys.wire.compose.interpolation import interpolated
from persys.wire.compose.rules import NO_OTHER_FILE, ComposeRules
from persys.wire.spec.checks import CPU_MILLICORES_MAX, MEMORY_MB_MAX, PORT_MAX
from persys.wire.specfile.yaml_nodes import YamlItem, YamlReader

_PORT = re.compile(
    r"(?:(?:(?P<address>[^/]*):)?(?P<host>\d+(?:-\d+)?)?:)?"
    r"(?P<container>\d+(?:-\d+)?)(?:/(?P<protocol>[a-z]+))?"
)
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) *(?P<unit>[bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_CPUS = re.compile(r"[0-9]+(\.[0-9]+)?|\.[0-9]+")
_MEBIBYTE = 1 << 20

PROFILES = "COMPOSE_PROFILES"
_COPIES_MAX = 9_999
_RESTARTS = {"none": "no", "on-failure": "on-failure"}
_PATH_CHARACTERS_MAX = 200
_RESTART_NAMES = ("", "no", "always", "on-failure", "unless-stopped")


class Mount(NamedTuple):
    """`source` is a host path, a volume name, or "" for an anonymous volume."""

    source: str
    read_only: bool
    target: str = ""

    @property
    def is_bind(self) -> bool:
        return self.source.startswith(("/", ".", "~"))


class Bind(NamedTuple):
    path: str
    read_only: bool
    where: str  # position in the file
    target: str = ""  # in the container


class Service(NamedTuple):
    name: str
    image: str
    pull_policy: str
    is_built: bool
    restart: RestartPolicy
    replicas: int
    waits_for: tuple[str, ...]  # services that must be healthy or completed before it starts


class StackFile(NamedTuple):
    needs: StackNeeds
    services: tuple[Service, ...]
    binds: tuple[Bind, ...]
    networks: tuple[str, ...]
    volumes: tuple[str, ...]


def read_inline(text: str, env: Mapping[str, str]) -> StackFile:
    """Raises InvalidError with the field and its line. The size of the text must be limited before."""
    return _Reader(lambda value: interpolated(value, env), env=env).read(text)


def read_resolved(text: str, *, project: str, inside: str) -> StackFile:
    """Reads the output of `docker compose config`, which has only services of active profiles."""
    return _Reader(lambda value: value.replace("$$", "$"), project=project, inside=inside).read(
        text
    )


class _Reader:
    def __init__(
        self,
        text_of: Callable[[str], str],
        *,
        env: Mapping[str, str] | None = None,
        project: str = "",
        inside: str = "",
    ) -> None:
        self._yaml = YamlReader(text_of)
        self._rules = ComposeRules(self._yaml, project=project, inside=inside)
        self._profiles = frozenset((env or {}).get(PROFILES, "").split(",")) - {""}
        self._is_resolved = bool(project)

    def read(self, text: str) -> StackFile:
        yaml = self._yaml
        top = yaml.mapping(yaml.root(text))
        self._rules.check_top(top)
        found = {
            name: yaml.mapping(item)
            for name, item in yaml.mapping_at(top, "services").items()
            if self._is_active(item)
        }
        if not found:
            raise InvalidError("services", "no service is active; expected at least one")
        for parts in found.values():
            self._rules.check_service(parts)
        services = tuple(self._service(name, parts) for name, parts in found.items())
        volumes = yaml.mapping_at(top, "volumes")
        binds = [bind for parts in found.values() for bind in self._binds(parts)]
        binds += [bind for item in volumes.values() for bind in self._hidden_bind(item)]
        ports = (port for parts in found.values() for port in self._ports(parts))
        privileged_by = self._privileged_by(found, top)
        needs = StackNeeds(
            ports=tuple(dict.fromkeys(ports)),
            cpu_millicores=sum(self._cpu(found[s.name]) * s.replicas for s in services),
            memory_mb=sum(self._memory(found[s.name]) * s.replicas for s in services),
            privileged=bool(privileged_by),
            privileged_by=privileged_by,
            holds_data=any(not bind.read_only for bind in binds)
            or any(self._names_volume(parts) for parts in found.values()),
            restarts=next((s.name for s in services if s.restart.name != "no"), ""),
        )
        networks = ("default", *yaml.mapping_at(top, "networks"))
        return StackFile(
            needs, services, tuple(binds), tuple(dict.fromkeys(networks)), tuple(volumes)
        )

    def _is_active(self, item: YamlItem) -> bool:
        parts = self._yaml.mapping(item)
        if self._is_resolved or "*" in self._profiles:
            return True
        wanted = {self._yaml.text(name) for name in self._yaml.sequence_at(parts, "profiles")}
        return not wanted or bool(wanted & self._profiles)

    def _service(self, name: str, parts: Mapping[str, YamlItem]) -> Service:
        yaml = self._yaml
        image, is_built = yaml.text_at(parts, "image"), "build" in parts
        if not image and not is_built:
            raise InvalidError(f"services.{name}", "has no image")
        deploy = yaml.mapping_at(parts, "deploy")
        return Service(
            name,
            image,
            yaml.text_at(parts, "pull_policy"),
            is_built,
            self._restart(parts, yaml.mapping_at(deploy, "restart_policy")),
            self._replicas(deploy.get("replicas") or parts.get("scale")),
            self._waits_for(parts),
        )

    def _waits_for(self, parts: Mapping[str, YamlItem]) -> tuple[str, ...]:
        if "depends_on" not in parts or not isinstance(parts["depends_on"].node, MappingNode):
            return ()
        return tuple(self._yaml.mapping_at(parts, "depends_on"))

    def _restart(
        self, parts: Mapping[str, YamlItem], policy: Mapping[str, YamlItem]
    ) -> RestartPolicy:
        if policy:
            condition = self._yaml.text_at(policy, "condition")
            return RestartPolicy(_RESTARTS.get(condition, "always"))
        text = self._yaml.text_at(parts, "restart")
        name, _, count = text.partition(":")
        retries_max = whole_number(count or "0")
        if name not in _RESTART_NAMES or retries_max is None:
            expected = "expected no, always, on-failure, on-failure:N or unless-stopped"
            raise parts["restart"].error(f"invalid restart policy {text[:40]!r}: {expected}")
        return RestartPolicy(name or "no", retries_max if name == "on-failure" else 0)

    def _replicas(self, item: YamlItem | None) -> int:
        text = self._yaml.text(item) if item is not None else ""
        if item is None or not text:
            return 1
        copies = whole_number(text)
        if copies is None or copies > _COPIES_MAX:
            raise item.error(f"{text[:40]!r}: expected 0 to {_COPIES_MAX} replicas")
        return copies

    def _ports(self, parts: Mapping[str, YamlItem]) -> Iterator[Port]:
        for item in self._yaml.sequence_at(parts, "ports"):
            try:
                yield from self._port(item)
            except ValueError as err:
                raise item.error(str(err)) from err

    def _port(self, item: YamlItem) -> tuple[Port, ...]:
        yaml = self._yaml
        if isinstance(item.node, ScalarNode):
            return _short_ports(yaml.text(item))
        port = yaml.mapping(item)
        protocol = yaml.text_at(port, "protocol") or "tcp"
        return _published(yaml.text_at(port, "published"), yaml.text_at(port, "target"), protocol)

    def _cpu(self, parts: Mapping[str, YamlItem]) -> int:
        return self._amount(self._limit(parts, "cpus") or parts.get("cpus"), _cpu_millicores)

    def _memory(self, parts: Mapping[str, YamlItem]) -> int:
        item = self._limit(parts, "memory") or parts.get("mem_limit")
        return self._amount(item or parts.get("mem_reservation"), _memory_mb)

    def _limit(self, parts: Mapping[str, YamlItem], key: str) -> YamlItem | None:
        deploy = self._yaml.mapping_at(parts, "deploy")
        resources = self._yaml.mapping_at(deploy, "resources")
        for name in ("limits", "reservations"):
            section = self._yaml.mapping_at(resources, name)
            if key in section:
                return section[key]
        return None

    def _amount(self, item: YamlItem | None, read: Callable[[str], int]) -> int:
        text = self._yaml.text(item) if item is not None else ""
        if item is None or not text:
            return 0
        try:
            return read(text)
        except ValueError as err:
            raise item.error(f"{text[:40]!r}: {err}") from err

    def _privileged_by(
        self, services: Mapping[str, Mapping[str, YamlItem]], top: Mapping[str, YamlItem]
    ) -> str:
        """The path of the first key that needs a privileged node; "" if there is none."""
        for name, parts in services.items():
            plain = {
                key: self._yaml.plain(item)
                for key, item in parts.items()
                if may_need_privilege(key)
            }
            if found := first_violation(plain, f"services.{name}"):
                return found.path[:_PATH_CHARACTERS_MAX]
        shared = {key: self._yaml.plain(top[key]) for key in ("networks", "volumes") if key in top}
        return next((found.path[:_PATH_CHARACTERS_MAX] for found in violations(shared)), "")

    def _mounts(self, parts: Mapping[str, YamlItem]) -> Iterator[tuple[YamlItem, Mount]]:
        yaml = self._yaml
        for item in yaml.sequence_at(parts, "volumes"):
            if isinstance(item.node, ScalarNode):
                yield item, _short_mount(yaml.text(item))
                continue
            mount = yaml.mapping(item)
            kind = yaml.text_at(mount, "type")
            if kind == "tmpfs":
                continue
            if kind not in ("bind", "volume"):
                raise item.error(f"type {kind!r} is not supported; use bind, volume or tmpfs")
            read_only = yaml.text_at(mount, "read_only").lower() == "true"
            source, target = yaml.text_at(mount, "source"), yaml.text_at(mount, "target")
            yield item, Mount(source, read_only, target)

    def _binds(self, parts: Mapping[str, YamlItem]) -> Iterator[Bind]:
        for item, mount in self._mounts(parts):
            if not mount.is_bind:
                continue
            if not mount.source.startswith("/"):
                instead = ", a named volume or an absolute path on the node"
                raise item.error(f"{mount.source!r}: {NO_OTHER_FILE}{instead}")
            where = f"{item.path}, line {item.line}"
            yield Bind(mount.source, mount.read_only, where, mount.target)

    def _hidden_bind(self, item: YamlItem) -> Iterator[Bind]:
        """The driver `local` can mount any directory of the host as a volume."""
        options = self._yaml.mapping_at(self._yaml.mapping(item), "driver_opts")
        device = self._yaml.text_at(options, "device")
        if device.startswith(("/", ".")):
            yield Bind(normpath(device), False, f"{item.path}.driver_opts, line {item.line}")

    def _names_volume(self, parts: Mapping[str, YamlItem]) -> bool:
        return any(mount.source and not mount.is_bind for _, mount in self._mounts(parts))


def _short_ports(text: str) -> tuple[Port, ...]:
    """The fixed host ports of a short port syntax such as `8080:80/udp`. Raises ValueError."""
    found = _PORT.fullmatch(text)
    if found is None:
        raise ValueError("expected a port such as 80, 8080:80 or 127.0.0.1:8080:80/udp")
    return _published(found["host"] or "", found["container"], found["protocol"] or "tcp")


def _published(host: str, container: str, protocol: str) -> tuple[Port, ...]:
    inside = _range(container)
    if not host:
        return ()
    outside = _range(host)
    if len(outside) != len(inside):
        return ()  # Docker picks a free port of the range
    pairs = zip(outside, inside, strict=True)
    return tuple(Port(target, source, protocol) for source, target in pairs if source)


def _short_mount(text: str) -> Mount:
    """`name:/path`, `/host/path:/path:ro`, or `/path` for an anonymous volume."""
    source, *rest = text.split(":")
    if not rest:
        return Mount("", read_only=False)
    modes = rest[1].split(",") if len(rest) > 1 else []
    return Mount(source, "ro" in modes, rest[0])


def _memory_mb(text: str) -> int:
    """Mebibytes, rounded up. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("expected a size such as 64m or 1g")
    size = float(found["number"]) * (1 << _UNITS[found["unit"].lower()]) / _MEBIBYTE
    if size > MEMORY_MB_MAX:
        raise ValueError(f"expected at most {MEMORY_MB_MAX >> 10}g")
    return ceil(size)


def _cpu_millicores(text: str) -> int:
    if not _CPUS.fullmatch(text):
        raise ValueError("expected a number of cpus such as 0.5")
    millicores = float(text) * 1000
    if millicores > CPU_MILLICORES_MAX:
        raise ValueError(f"expected at most {CPU_MILLICORES_MAX // 1000}")
    return ceil(millicores)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    begin, end = whole_number(first), whole_number(last or first)
    if begin is None or end is None or not begin <= end <= PORT_MAX:
        raise ValueError(f"expected ports from 1 to {PORT_MAX}")
    return range(begin, end + 1)
