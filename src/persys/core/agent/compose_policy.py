"""Which parts of a Compose document a node accepts without PERSYS_ALLOW_PRIVILEGED.

The input is the document that `docker compose config` printed: variables, includes and extends are resolved.
The rules are a list of what is allowed, key by key. A key that is not listed is refused by its path, so a
key that a later Compose introduces is refused until the list names it. Two kinds of content pass
without a rule: extension keys (`x-…`), which Compose ignores, and empty values, which change nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias, assert_never

from persys.core.numbers import whole_number

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

NEEDS_PRIVILEGE = "not allowed on this node (PERSYS_ALLOW_PRIVILEGED is not set)"
LOG_DRIVERS = ("json-file", "local", "none", "journald")
_NETWORK_MODES = ("none", "bridge", "default")
_SHORT_MODES = frozenset({"ro", "rw", "nocopy", "cached", "delegated", "consistent"})
# Docker applies these inside the namespaces of the container only.
_SYSCTL = re.compile(r"net\.[\w./-]+|kernel\.(?:msg\w+|sem|shm\w+)|fs\.mqueue\.\w+")
_TMPFS_OPTION = re.compile(r"(?:size|nr_inodes|mode|uid|gid)=\w+%?|nosuid|nodev|noexec|ro|rw")
_NETWORK_OPTIONS = (
    "com.docker.network.driver.mtu",
    "com.docker.network.bridge.enable_icc",
    "com.docker.network.bridge.enable_ip_masquerade",
)
_OOM_SCORE_MAX = 1000
# Keys of Compose that are not on the list. Only for placement: the node refuses every key that is not listed.
REFUSED_KEYS = frozenset(
    [
        "annotations",
        "blkio_config",
        "cap_add",
        "cgroup_parent",
        "cpu_rt_period",
        "cpu_rt_runtime",
        "credential_spec",
        "develop",
        "device_cgroup_rules",
        "devices",
        "gpus",
        "isolation",
        "models",
        "oom_kill_disable",
        "post_start",
        "pre_stop",
        "privileged",
        "provider",
        "runtime",
        "use_api_socket",
        "userns_mode",
        "uts",
    ]
)
# Compose resolves these and leaves them out of what `config` prints.
BEFORE_CONFIG = ("env_file", "extends", "label_file")


@dataclass(frozen=True, slots=True)
class Violation:
    """`path` names the key in the document, for example services.web.privileged."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Anything:
    """Every value is accepted."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A mapping with these keys. Where Compose also takes a scalar, `scalar` is the rule for it."""

    allowed: Mapping[str, "Rule"]
    scalar: "Rule | None" = None


@dataclass(frozen=True, slots=True)
class Each:
    """Every value of a mapping or item of a list follows the rule."""

    rule: "Rule"


@dataclass(frozen=True, slots=True)
class Check:
    """`problem` returns what is wrong with the value, or an empty string."""

    problem: Callable[[Json], str]


Rule: TypeAlias = Anything | Keys | Each | Check


def violations(document: Mapping[str, Json]) -> list[Violation]:
    """Everything in a resolved document that is not on the list, in the order of the document."""
    return list(_check(dict(document), DOCUMENT, ""))


def first_violation(service: Mapping[str, Json], path: str) -> Violation | None:
    """The first key or value of a service, as it is written, that is not on the list."""
    parts = {name: value for name, value in service.items() if name not in BEFORE_CONFIG}
    return next(_check(parts, SERVICE, path), None)


def may_need_privilege(key: str) -> bool:
    """Whether placement has to check a service's key: it is refused, or allowed with some values only.

    A key that Compose does not know is refused by the node, with its name.
    """
    return key in REFUSED_KEYS or SERVICE.allowed.get(key, ANY) != ANY


def is_empty(value: Json) -> bool:
    return value in (None, False, "", [], {})


def _check(value: Json, rule: Rule, path: str) -> Iterator[Violation]:
    if is_empty(value):
        return
    match rule:
        case Anything():
            return
        case Check(problem=problem):
            if found := problem(value):
                yield Violation(path, found)
        case Each(rule=inner):
            yield from _check_each(value, inner, path)
        case Keys():
            yield from _check_keys(value, rule, path)
        case unreachable:
            assert_never(unreachable)


def _check_each(value: Json, rule: Rule, path: str) -> Iterator[Violation]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _check(item, rule, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check(item, rule, f"{path}[{index}]")
    else:
        yield from _check(value, rule, path)


def _check_keys(value: Json, rule: Keys, path: str) -> Iterator[Violation]:
    if not isinstance(value, dict):
        if rule.scalar is None or isinstance(value, list):
            yield Violation(path, "expected a mapping")
        else:
            yield from _check(value, rule.scalar, path)
        return
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if name in rule.allowed:
            yield from _check(item, rule.allowed[name], where)
        elif not name.startswith("x-") and not is_empty(item):
            yield Violation(where, NEEDS_PRIVILEGE)


def _one_of(*allowed: str) -> Check:
    def problem(value: Json) -> str:
        return "" if value in allowed else f"{value!r} is {NEEDS_PRIVILEGE}"

    return Check(problem)


def _mode(*allowed: str) -> Check:
    """A namespace of the container: its own, or that of another service of the stack."""

    def problem(value: Json) -> str:
        text = str(value)
        is_own = text in allowed or text.startswith("service:")
        return "" if is_own else f"{text!r} is {NEEDS_PRIVILEGE}"

    return Check(problem)


def _is_number_up_to(limit: int) -> Check:
    def problem(value: Json) -> str:
        number = whole_number(str(value))
        is_fine = number is not None and number <= limit
        return "" if is_fine else f"{value!r:.80} is {NEEDS_PRIVILEGE}; expected 0 to {limit}"

    return Check(problem)


def _security_option(value: Json) -> str:
    allowed = str(value) in (
        "no-new-privileges",
        "no-new-privileges:true",
        "no-new-privileges=true",
    )
    return "" if allowed else f"{value!r} is {NEEDS_PRIVILEGE}"


def _sysctls(value: Json) -> str:
    names = value if isinstance(value, dict | list) else [value]
    for name in names:
        plain = str(name).partition("=")[0]
        if not _SYSCTL.fullmatch(plain):
            return f"{plain!r} is {NEEDS_PRIVILEGE}"
    return ""


def _volumes_from(value: Json) -> str:
    return f"{value!r} is {NEEDS_PRIVILEGE}" if str(value).startswith("container:") else ""


def _short_mount(value: Json) -> str:
    """`source:target:mode`, as Compose v1 prints mounts."""
    _, _, rest = str(value).partition(":")
    _, _, modes = rest.partition(":")
    refused = [mode for mode in modes.split(",") if mode and mode not in _SHORT_MODES]
    return f"mode {refused[0]!r} is {NEEDS_PRIVILEGE}" if refused else ""


def _tmpfs_options(value: Json) -> str:
    for option in str(value).split(","):
        if option and not _TMPFS_OPTION.fullmatch(option):
            return f"{option!r} is {NEEDS_PRIVILEGE}"
    return ""


def _driver_options(value: Json) -> str:
    """The local driver mounts any path in its options; only a tmpfs does not access the node."""
    options = value if isinstance(value, dict) else {}
    unknown = sorted(set(options) - {"type", "device", "o"})
    if unknown:
        return f"{unknown[0]!r} is {NEEDS_PRIVILEGE}"
    if options.get("type") != "tmpfs" or options.get("device") not in ("tmpfs", "none"):
        return f"only type tmpfs with device tmpfs is allowed; anything else is {NEEDS_PRIVILEGE}"
    return _tmpfs_options(options.get("o") or "")


def _keys(*names: str, **rules: Rule) -> dict[str, Rule]:
    return {**dict.fromkeys(names, ANY), **rules}


ANY = Anything()
_LIMITS = Keys(_keys("cpus", "memory", "pids"))
_RESOURCES = Keys({"limits": _LIMITS, "reservations": _LIMITS})
_DEPLOY = Keys(_keys("replicas", "mode", "restart_policy", "labels", resources=_RESOURCES))
_MOUNT = Keys(
    _keys(
        "source",
        "target",
        "read_only",
        "consistency",
        type=_one_of("bind", "volume", "tmpfs"),
        bind=Keys({"create_host_path": ANY, "propagation": _one_of("private", "rprivate")}),
        volume=Keys(_keys("nocopy", "subpath", "labels")),
        tmpfs=Keys(_keys("size", "mode")),
    ),
    scalar=Check(_short_mount),
)
_ENDPOINT = Keys(
    _keys(
        "aliases",
        "ipv4_address",
        "ipv6_address",
        "link_local_ips",
        "mac_address",
        "priority",
        "gw_priority",
        "interface_name",
    ),
    scalar=ANY,
)
_FILE_USE = Keys(_keys("source", "target", "uid", "gid", "mode"), scalar=ANY)
_BUILD = Keys(
    _keys(
        "context",
        "dockerfile",
        "dockerfile_inline",
        "args",
        "labels",
        "target",
        "extra_hosts",
        "no_cache",
        "pull",
        "platforms",
        "shm_size",
        "ulimits",
        network=_one_of("none", "default", "bridge"),
    ),
    scalar=ANY,
)
SERVICE = Keys(
    _keys(
        "attach",
        "cap_drop",
        "command",
        "cpu_count",
        "cpu_percent",
        "cpu_period",
        "cpu_quota",
        "cpu_shares",
        "cpus",
        "cpuset",
        "depends_on",
        "dns",
        "dns_opt",
        "dns_search",
        "domainname",
        "entrypoint",
        "environment",
        "expose",
        "extra_hosts",
        "group_add",
        "healthcheck",
        "hostname",
        "image",
        "init",
        "labels",
        "links",
        "mac_address",
        "mem_limit",
        "mem_reservation",
        "mem_swappiness",
        "memswap_limit",
        "pids_limit",
        "platform",
        "ports",
        "profiles",
        "pull_policy",
        "pull_refresh_after",
        "read_only",
        "restart",
        "scale",
        "shm_size",
        "stdin_open",
        "stop_grace_period",
        "stop_signal",
        "tmpfs",
        "tty",
        "ulimits",
        "user",
        "working_dir",
        build=_BUILD,
        cgroup=_one_of("private"),
        configs=Each(_FILE_USE),
        deploy=_DEPLOY,
        ipc=_mode("none", "private", "shareable"),
        logging=Keys({"driver": _one_of(*LOG_DRIVERS), "options": ANY}),
        network_mode=_mode(*_NETWORK_MODES),
        networks=Each(_ENDPOINT),
        oom_score_adj=_is_number_up_to(_OOM_SCORE_MAX),
        pid=_mode(),
        secrets=Each(_FILE_USE),
        security_opt=Each(Check(_security_option)),
        storage_opt=Keys({"size": ANY}),
        sysctls=Check(_sysctls),
        volumes=Each(_MOUNT),
        volumes_from=Each(Check(_volumes_from)),
    )
)
_NETWORK = Keys(
    _keys(
        "name",
        "attachable",
        "enable_ipv4",
        "enable_ipv6",
        "internal",
        "labels",
        driver=_one_of("bridge", "default"),
        driver_opts=Keys(dict.fromkeys(_NETWORK_OPTIONS, ANY)),
        ipam=Keys(_keys("config", driver=_one_of("default"))),
    )
)
_VOLUME = Keys(_keys("name", "labels", driver=_one_of("local"), driver_opts=Check(_driver_options)))
# That a file is inside the project is checked by the agent, which can see the file.
_SECRET = Keys(_keys("name", "file", "environment", "labels"))
_CONFIG = Keys(_keys("name", "file", "content", "environment", "labels"))
DOCUMENT = Keys(
    _keys(
        "name",
        "version",
        services=Each(SERVICE),
        networks=Each(_NETWORK),
        volumes=Each(_VOLUME),
        secrets=Each(_SECRET),
        configs=Each(_CONFIG),
    )
)


SYSTEM_DIRECTORIES = (
    *(f"/{name}" for name in ("boot", "dev", "etc", "proc", "root", "run", "sys")),
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/lib/libvirt",
    "/var/lib/persys",
    "/var/run",
)
PATH_BYTES_MAX = 4096
NAME_BYTES_MAX = 255
_ROOT = PurePosixPath("/")


def problem_with(path: str, *, roots: Iterable[str], protected: Iterable[str]) -> str:
    """Why this path is refused; an empty string if it is allowed. Links are not resolved here."""
    if malformed := _malformed(path):
        return malformed
    wanted = PurePosixPath(path)
    listed = [PurePosixPath(root) for root in roots]
    containing = [root for root in listed if wanted.is_relative_to(root)]
    if listed and not containing:
        return f"{path!r} is not below {', '.join(map(str, listed))} (PERSYS_BIND_ROOTS)"
    if wanted in listed:
        return ""
    if wanted == _ROOT:
        return f"{path!r} is protected; PERSYS_BIND_ROOTS does not list it"
    for name in protected:
        guarded = PurePosixPath(name)
        overlaps = wanted.is_relative_to(guarded) or guarded.is_relative_to(wanted)
        if overlaps and not any(root.is_relative_to(guarded) for root in containing):
            return f"{path!r} is refused because {name} is protected; PERSYS_BIND_ROOTS does not list it"
    return ""


def root_of(path: str, roots: Iterable[str]) -> str:
    """The closest configured root above a path, or "/" without roots."""
    wanted = PurePosixPath(path)
    containing = [root for root in roots if wanted.is_relative_to(root)]
    return max(containing, key=len, default="/")


def _malformed(path: str) -> str:
    shown = repr(path if len(path) <= NAME_BYTES_MAX else f"{path[:NAME_BYTES_MAX]}…")
    if not path.startswith("/") or path.startswith("//"):
        return f"invalid path {shown}: expected an absolute path"
    if "\0" in path or len(path.encode()) >= PATH_BYTES_MAX:
        return f"invalid path {shown}: expected at most {PATH_BYTES_MAX - 1} bytes without NUL"
    parts = path.split("/")
    if ".." in parts:
        return f"invalid path {shown}: '..' is not allowed"
    if any(len(part.encode()) > NAME_BYTES_MAX for part in parts):
        return f"invalid path {shown}: a name is longer than {NAME_BYTES_MAX} bytes"
    return ""
