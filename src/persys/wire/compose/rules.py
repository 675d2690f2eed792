"""The rules for Compose files: unsupported features, and the other files that a file refers to.

Unsupported is what affects objects outside the workload (fixed names, external objects, other files on the
node) and what only Swarm implements. Each is refused with the field, the line and an alternative;
docs/how-to/compose-stacks.md has the list for users. References to other files (includes, extended files, env
and label files) are found before Compose runs, because Compose reads them before it prints a result that
could be checked. The whole text is searched for the keys, also below anchors and extension fields.
"""

from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import NamedTuple

from persys.core.bounded_yaml import MappingNode, Node, ScalarNode, SequenceNode, compose
from persys.wire.specfile.yaml_nodes import YamlItem, YamlReader

HOST_NAMESPACES = ("network_mode", "pid", "ipc", "uts", "userns_mode", "cgroup")
NO_OTHER_FILE = (
    "files beside the Compose file are not sent to the node; "
    "use a Git repository (compose.source_type: git)"
)
_OWN_LABELS = ("persys.", "com.docker.compose.")
_COLLIDES = "a fixed name could conflict with other workloads; remove it"
_OUTSIDE_WORKLOAD = "objects outside this workload are not supported; remove it"
_OUTSIDE_CONTAINER = "refers to a container outside this workload; remove it"
_ONLY_SWARM = "only Swarm supports it"
_UNSUPPORTED = {
    "container_name": _COLLIDES,
    "external_links": _OUTSIDE_WORKLOAD,
    "credential_spec": "is supported only on Windows",
}
_UNSUPPORTED_INLINE = {
    "build": f"no build context: {NO_OTHER_FILE}, or an image that is already built",
    "extends": f"{NO_OTHER_FILE}; within the file use YAML anchors",
}
_UNSUPPORTED_IN_DEPLOY = {
    "placement": f"{_ONLY_SWARM}; use the workload's own placement",
    "update_config": _ONLY_SWARM,
    "rollback_config": _ONLY_SWARM,
    "endpoint_mode": _ONLY_SWARM,
}
_UNSUPPORTED_IN_BUILD = ("additional_contexts", "secrets", "ssh", "entitlements", "privileged")

PROJECT_DIRECTORY = "project_directory"
# Below `extends` only `file` is a path; a plain text is the name of a service in the same file.
_KEYS = ("env_file", "include", "extends", "label_file")
_NESTED_KEYS = ("env_file", PROJECT_DIRECTORY)
_NOT_PATHS = ("service", "required", "format")
_COMPOSE_FILES = ("include", "extends")


class ComposeRules:
    """Checks one file. `project` and `inside` are "" for the text of an inline file."""

    def __init__(self, yaml: YamlReader, *, project: str, inside: str) -> None:
        self._yaml = yaml
        self._project = project
        self._inside = inside

    def check_top(self, top: Mapping[str, YamlItem]) -> None:
        """Check the top-level keys. Raises InvalidError."""
        if "include" in top:
            raise top["include"].error(NO_OTHER_FILE)
        if "name" in top and self._yaml.text(top["name"]) != self._project:
            raise top["name"].error("the name is derived from the workload id; remove it")
        for section in ("volumes", "networks", "secrets", "configs"):
            for name, item in self._yaml.mapping_at(top, section).items():
                self._check_shared(name, self._yaml.mapping(item))

    def check_service(self, parts: Mapping[str, YamlItem]) -> None:
        for key, problem in (
            _UNSUPPORTED.items() if self._project else (_UNSUPPORTED | _UNSUPPORTED_INLINE).items()
        ):
            if key in parts:
                raise parts[key].error(problem)
        if not self._project:
            self._check_env_files(parts)
        for key in HOST_NAMESPACES:
            if self._yaml.text_at(parts, key).startswith("container:"):
                raise parts[key].error(_OUTSIDE_CONTAINER)
        for item in self._yaml.sequence_at(parts, "volumes_from"):
            if self._yaml.text(item).startswith("container:"):
                raise item.error(_OUTSIDE_CONTAINER)
        for item in self._yaml.names(parts["labels"]) if "labels" in parts else ():
            if self._yaml.text(item).startswith(_OWN_LABELS):
                raise item.error("labels with this prefix are reserved; use another name")
        if "build" in parts:
            self._check_build(parts["build"])
        self._check_deploy(self._yaml.mapping_at(parts, "deploy"))

    def _check_shared(self, name: str, parts: Mapping[str, YamlItem]) -> None:
        if "external" in parts and not self._is_false(parts["external"]):
            raise parts["external"].error(_OUTSIDE_WORKLOAD)
        if "name" in parts and self._yaml.text(parts["name"]) != f"{self._project}_{name}":
            raise parts["name"].error(_COLLIDES)
        if "file" in parts and not self._is_inside(self._yaml.text(parts["file"])):
            problem = "is outside the repository" if self._inside else NO_OTHER_FILE
            raise parts["file"].error(problem)

    def _check_env_files(self, parts: Mapping[str, YamlItem]) -> None:
        for item in self._yaml.sequence_at(parts, "env_file"):
            if normpath(self._yaml.text(item) or "/") != ".env":
                raise item.error(
                    f"only .env, which contains the spec's env, exists: {NO_OTHER_FILE}"
                )

    def _check_build(self, item: YamlItem) -> None:
        if isinstance(item.node, ScalarNode):
            contexts = [item]
        else:
            parts = self._yaml.mapping(item)
            for key in _UNSUPPORTED_IN_BUILD:
                if key in parts and not parts[key].is_empty:
                    raise parts[key].error("is not supported in a build")
            contexts = [parts[key] for key in ("context",) if key in parts]
        for context in contexts:
            if not self._is_inside(self._yaml.text(context)):
                raise context.error("is outside the repository")

    def _check_deploy(self, deploy: Mapping[str, YamlItem]) -> None:
        for key, problem in _UNSUPPORTED_IN_DEPLOY.items():
            # The output of Compose contains empty ones.
            if key in deploy and not deploy[key].is_empty:
                raise deploy[key].error(problem)
        if self._yaml.text_at(deploy, "mode") not in ("", "replicated"):
            raise deploy["mode"].error(f"{_ONLY_SWARM}; a workload runs on one node")

    def _is_false(self, item: YamlItem) -> bool:
        return isinstance(item.node, ScalarNode) and self._yaml.text(item).lower() == "false"

    def _is_inside(self, path: str) -> bool:
        place = normpath(path)
        return bool(self._inside) and f"{place}/".startswith(f"{self._inside}/")


class Reference(NamedTuple):
    key: str
    path: str
    line: int

    @property
    def is_compose_file(self) -> bool:
        return self.key in _COMPOSE_FILES


def references(text: str) -> list[Reference]:
    """Raises InvalidError if the text is not YAML or exceeds a limit."""
    root = compose(text)
    return list(_search(root)) if root is not None else []


def _search(root: Node) -> Iterator[Reference]:
    """Visit every node once, so aliases do not multiply the work."""
    seen: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            waiting += node.value
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                waiting += (key, value)
                name = key.value if isinstance(key, ScalarNode) else ""
                if name in _KEYS:
                    yield from _paths(name, value, set())


def _paths(key: str, node: Node, seen: set[int]) -> Iterator[Reference]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        yield Reference(key, str(node.value), node.start_mark.line + 1)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _paths(key, item, seen)
    elif isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value not in _NOT_PATHS:
                nested = name.value if name.value in _NESTED_KEYS else key
                yield from _paths(nested, value, seen)
