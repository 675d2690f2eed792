"""The document that Compose executes: the checked output of `config` plus the agent's own parts.

It holds resolved values, so it exists in memory only and is passed to Compose on standard input. Every
function returns a new document. The files that Compose reads to resolve a project must be inside the project;
`references_problem` checks them before.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from persys.core.agent.compose_policy import Json
from persys.core.bounded_yaml import load_mapping
from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.wire.compose.rules import PROJECT_DIRECTORY, Reference, references

Document = dict[str, Json]
_SECTIONS = ("services", "networks", "volumes", "secrets", "configs")
_SECRET_VARIABLE = "PERSYS_STACK_VALUE_"  # noqa: S105  # a name, not a value


FILES_MAX = 50
FILE_BYTES_MAX = 1024 * 1024
# Compose also reads its own options from an env file.
_COMPOSE_OPTIONS = re.compile(
    rb"^\s*(?:export\s+)?(?:DOCKER_|COMPOSE_(?!PROFILES\b|PROJECT_NAME\b))", re.M
)


class FileUse(NamedTuple):
    """A file of the project that services use as a secret or a config."""

    section: str
    name: str
    file: str
    targets: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.section}.{self.name}.file"


def load(resolved: str) -> Document:
    """Parse the output of `config`. Raises InvalidError."""
    found = load_mapping(resolved)
    document = {key: value for key, value in found.items() if key != "version"}
    # v1 writes YAML aliases. The copy resolves them, so that a change affects one place only.
    plain: Document = json.loads(json.dumps(document, default=str))
    for section in _SECTIONS:
        parts = plain.get(section) or {}
        if not isinstance(parts, dict):
            raise InvalidError(section, "expected a mapping")
        plain[section] = {name: part or {} for name, part in parts.items()}
    return plain


def encode(document: Document) -> bytes:
    return json.dumps(document).encode()


def section(document: Document, name: str) -> dict[str, dict[str, Json]]:
    """A section of the document. Raises InvalidError if it is not a mapping of mappings."""
    found: dict[str, dict[str, Json]] = {}
    parts = document.get(name)
    for key, part in parts.items() if isinstance(parts, dict) else ():
        if not isinstance(part, dict):
            raise InvalidError(f"{name}.{key}", "expected a mapping")
        found[key] = part
    return found


def with_active_services(document: Document, profiles: frozenset[str]) -> Document:
    """Remove services of inactive profiles, which Compose v1 prints too."""
    changed = deepcopy(document)
    services: dict[str, Json] = {}
    for name, service in section(changed, "services").items():
        wanted = service.pop("profiles", None)
        names = {str(one) for one in wanted} if isinstance(wanted, list) else set()
        if not names or "*" in profiles or names & profiles:
            services[name] = service
    changed["services"] = services
    return changed


def with_moved_paths(document: Document, *, old: Path, new: Path) -> Document:
    """Rewrite the paths of binds, secrets and configs from `old` to `new`."""
    changed = deepcopy(document)
    for service in section(changed, "services").values():
        mounts = service.get("volumes")
        service["volumes"] = [_moved(mount, old, new) for mount in _items(mounts)]
        if not service["volumes"]:
            del service["volumes"]
    for name in ("secrets", "configs"):
        for part in section(changed, name).values():
            if "file" in part:
                part["file"] = _moved_path(str(part["file"]), old, new)
    return changed


def with_own_images(document: Document, project: str) -> Document:
    """Name the images that the stack builds after the project, so that they replace no image of others."""
    changed = deepcopy(document)
    services = section(changed, "services")
    own = {
        str(service["image"]): f"{project}-{name}"
        for name, service in services.items()
        if service.get("build") and service.get("image")
    }
    for name, service in services.items():
        if service.get("build"):
            service["image"] = own.get(str(service.get("image")), f"{project}-{name}")
            build = service["build"]
            if isinstance(build, dict):
                build.pop("tags", None)
        elif service.get("image") in own:
            service["image"] = own[str(service["image"])]
    return changed


def with_values(document: Document, env: Mapping[str, str]) -> tuple[Document, dict[str, str]]:
    """Resolve secrets and configs that refer to a variable.

    Returns the document and the environment variables to run Compose with. Raises InvalidError.
    """
    changed = deepcopy(document)
    variables: dict[str, str] = {}
    for kind in ("secrets", "configs"):
        for name, part in section(changed, kind).items():
            if "environment" not in part:
                continue
            wanted = str(part["environment"])
            if wanted not in env:
                problem = f"variable {wanted!r} is not set in spec.compose.env"
                raise InvalidError(f"{kind}.{name}.environment", problem)
            variable = f"{_SECRET_VARIABLE}{len(variables)}"
            part["environment"] = variable
            variables[variable] = env[wanted]
    return changed, variables


def with_pids_limit(document: Document, pids_max: int, *, is_v1: bool) -> Document:
    """Set the node's limit on every service without a limit of its own."""
    changed = deepcopy(document)
    for service in section(changed, "services").values():
        limits = _limits(service)
        own = service.get("pids_limit") or limits.get("pids")
        if whole_number(str(own)):
            continue
        service["pids_limit"] = pids_max
        if limits and not is_v1:
            limits["pids"] = pids_max  # v2 rejects two different limits
        else:
            limits.pop("pids", None)
    return changed


class Attachment(NamedTuple):
    """A network of Docker that a service joins with a given address."""

    network: str
    address: str
    dns_server: str


def with_networks(document: Document, attachments: Mapping[str, Sequence[Attachment]]) -> Document:
    """Join networks that exist outside of the stack, besides those of the document."""
    services, networks = section(document, "services"), section(document, "networks")
    for name, joined in attachments.items():
        service = services[name]
        own = _networks_of(service) or {"default": None}
        for one in joined:
            networks[one.network] = {"external": True, "name": one.network}
            own[one.network] = {"ipv4_address": one.address, "aliases": [name]}
        services[name] = {**service, "networks": own}
        if joined and not service.get("dns"):
            services[name]["dns"] = [joined[0].dns_server]
    if any("default" in _networks_of(one) for one in services.values()):
        networks.setdefault("default", {})
    return {**document, "services": dict(services), "networks": dict(networks)}


def _networks_of(service: Mapping[str, Json]) -> dict[str, Json]:
    """The networks of a service by name. A list of names is the short form."""
    found = service.get("networks")
    if isinstance(found, dict):
        return dict(found)
    return {str(name): None for name in found} if isinstance(found, list) else {}


def without_health_conditions(document: Document) -> Document:
    """Remove health conditions: v1 waits for healthy services even when it only creates containers."""
    changed = deepcopy(document)
    for service in section(changed, "services").values():
        others = service.get("depends_on")
        if isinstance(others, dict):
            service["depends_on"] = {name: {"condition": "service_started"} for name in others}
    return changed


def merged(document: Document, override: Mapping[str, Json]) -> Document:
    """Merge mappings key by key and replace everything else."""
    changed = deepcopy(document)
    _merge(changed, override)
    return changed


def file_uses(document: Document) -> list[FileUse]:
    """Secrets and configs that are files, with their paths in the services."""
    found = []
    for kind, default in (("secrets", "/run/secrets/"), ("configs", "/")):
        for name, part in section(document, kind).items():
            if "file" in part:
                targets = tuple(_targets(document, kind, name, default))
                found.append(FileUse(kind, name, str(part["file"]), targets))
    return found


def _targets(document: Document, kind: str, name: str, default: str) -> list[str]:
    targets = []
    for service in section(document, "services").values():
        for use in _items(service.get(kind)):
            parts = use if isinstance(use, dict) else {"source": use}
            if parts.get("source") == name:
                target = str(parts.get("target") or name)
                targets.append(target if target.startswith("/") else default + target)
    return targets


def _moved(mount: Json, old: Path, new: Path) -> Json:
    if isinstance(mount, dict):
        if mount.get("type") == "bind":
            return {**mount, "source": _moved_path(str(mount.get("source")), old, new)}
        return mount
    source, colon, rest = str(mount).partition(":")
    return f"{_moved_path(source, old, new)}{colon}{rest}"


def _moved_path(path: str, old: Path, new: Path) -> str:
    if Path(path).is_relative_to(old):
        return str(new / Path(path).relative_to(old))
    return path


def _limits(service: dict[str, Json]) -> dict[str, Json]:
    found: Json = service
    for key in ("deploy", "resources", "limits"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _merge(into: dict[str, Json], other: Mapping[str, Json]) -> None:
    for key, value in other.items():
        present = into.get(key)
        if key == "labels" and isinstance(present, list):
            present = dict(str(label).partition("=")[::2] for label in present)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value)
            into[key] = present
        else:
            into[key] = deepcopy(value)


def references_problem(file: Path, base: Path) -> str:
    """Why Compose must not resolve this file; "" if all files it would read are below `base`. OSError."""
    try:
        found = _collect(file, base)
    except InvalidError as err:
        return str(err)
    directories = {one.parent for one in found}
    for one, items in found.items():
        directories |= {one.parent / item.path for item in items if item.key == PROJECT_DIRECTORY}
    for one, items in found.items():
        for item in items:
            if problem := _problem(item, directories, base):
                name = one.relative_to(base)
                return f"{item.key}: {name} line {item.line}: {item.path[:200]!r} {problem}"
    return ""


def project_env(path: Path) -> bytes:
    """The content of the repository's env file, or b"". Raises InvalidError, OSError."""
    if not path.is_file():
        return b""
    content = _read(path)
    if found := _COMPOSE_OPTIONS.search(content):
        name = found[0].decode(errors="replace").strip()
        raise InvalidError(".env", f"variables that begin with {name} are not allowed in this file")
    return content + b"\n"


def _collect(file: Path, base: Path) -> dict[Path, list[Reference]]:
    """The references of each Compose file, starting with `file`."""
    found: dict[Path, list[Reference]] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one in found or not one.is_file():
            continue
        if len(found) >= FILES_MAX:
            raise InvalidError("include", f"refers to more than {FILES_MAX} files")
        found[one] = references(_read(one).decode("utf-8", "replace"))
        for item in found[one]:
            if item.is_compose_file and not _problem(item, {one.parent}, base):
                for directory in {one.parent, file.parent}:
                    waiting.append(Path(os.path.normpath(directory / item.path)))
    return found


def _problem(item: Reference, directories: set[Path], base: Path) -> str:
    if "$" in item.path:
        return "contains a variable, which is not allowed in a file path"
    if urlsplit(item.path).scheme or "@" in item.path.partition("/")[0]:
        return "is not a file of the project"
    inside = all(
        Path(os.path.normpath(directory / item.path)).is_relative_to(base)
        for directory in directories
    )
    return "" if inside else "is outside the project"


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidError(path.name, f"is larger than {FILE_BYTES_MAX} bytes")
    return content
