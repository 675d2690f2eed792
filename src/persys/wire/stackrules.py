"""What in a Compose file cannot be honoured. Each is refused by name, with the line and what to do instead.

What would reach beyond the workload's own (names, things made by others, files elsewhere on the node) or what
only a swarm does. docs/operations.md has the list for users.
"""

from collections.abc import Mapping
from posixpath import normpath

from persys.core.bounded_yaml import ScalarNode
from persys.wire.nodes import Item, Walk

HOST_SPACES = ("network_mode", "pid", "ipc", "uts", "userns_mode", "cgroup")
NO_OTHER_FILE = "an inline file has no other file beside it; use a repository"
_OWN_LABELS = ("persys.", "com.docker.compose.")
_COLLIDES = "a name of one's own would collide with other workloads; leave it out"
_NOT_MADE_HERE = "what this workload did not make cannot be counted on; leave it out"
_OTHERS_CONTAINER = "names a container of somebody else"
_ONLY_SWARM = "only a swarm honours it"
_NEVER = {
    "container_name": _COLLIDES,
    "external_links": _NOT_MADE_HERE,
    "credential_spec": "is only for Windows",
}
_NEVER_INLINE = {
    "build": f"there is nothing to build from: {NO_OTHER_FILE}",
    "extends": f"{NO_OTHER_FILE}; within the file use YAML anchors",
}
_NEVER_IN_DEPLOY = {
    "placement": f"{_ONLY_SWARM}; use the workload's own placement",
    "update_config": _ONLY_SWARM,
    "rollback_config": _ONLY_SWARM,
    "endpoint_mode": _ONLY_SWARM,
}
_NEVER_IN_BUILD = ("additional_contexts", "secrets", "ssh", "entitlements", "privileged")


class Rules:
    """`project` and `inside` are "" for the text of an inline file."""

    def __init__(self, walk: Walk, *, project: str, inside: str) -> None:
        self._walk = walk
        self._project = project
        self._inside = inside

    def check_top(self, top: Mapping[str, Item]) -> None:
        """Raises InvalidError, as all of these do."""
        if "include" in top:
            raise top["include"].refused(NO_OTHER_FILE)
        if "name" in top and self._walk.text(top["name"]) != self._project:
            raise top["name"].refused("the name is made of the workload's id; leave it out")
        for section in ("volumes", "networks", "secrets", "configs"):
            for name, item in self._walk.mapping_at(top, section).items():
                self._check_shared(name, self._walk.mapping(item))

    def check_service(self, parts: Mapping[str, Item]) -> None:
        for key, problem in _NEVER.items() if self._project else (_NEVER | _NEVER_INLINE).items():
            if key in parts:
                raise parts[key].refused(problem)
        if not self._project:
            self._check_env_files(parts)
        for key in HOST_SPACES:
            if self._walk.text_at(parts, key).startswith("container:"):
                raise parts[key].refused(_OTHERS_CONTAINER)
        for item in self._walk.sequence_at(parts, "volumes_from"):
            if self._walk.text(item).startswith("container:"):
                raise item.refused(_OTHERS_CONTAINER)
        for item in self._walk.names(parts["labels"]) if "labels" in parts else ():
            if self._walk.text(item).startswith(_OWN_LABELS):
                raise item.refused("names that begin so say whom a container belongs to")
        if "build" in parts:
            self._check_build(parts["build"])
        self._check_deploy(self._walk.mapping_at(parts, "deploy"))

    def _check_shared(self, name: str, parts: Mapping[str, Item]) -> None:
        if "external" in parts and not self._is_false(parts["external"]):
            raise parts["external"].refused(_NOT_MADE_HERE)
        if "name" in parts and self._walk.text(parts["name"]) != f"{self._project}_{name}":
            raise parts["name"].refused(_COLLIDES)
        if "file" in parts and not self._is_inside(self._walk.text(parts["file"])):
            problem = "is outside the repository" if self._inside else NO_OTHER_FILE
            raise parts["file"].refused(problem)

    def _check_env_files(self, parts: Mapping[str, Item]) -> None:
        for item in self._walk.sequence_at(parts, "env_file"):
            if normpath(self._walk.text(item) or "/") != ".env":
                raise item.refused(
                    f"only .env, which holds the spec's env, is there: {NO_OTHER_FILE}"
                )

    def _check_build(self, item: Item) -> None:
        if isinstance(item.node, ScalarNode):
            contexts = [item]
        else:
            parts = self._walk.mapping(item)
            for key in _NEVER_IN_BUILD:
                if key in parts and not parts[key].is_empty:
                    raise parts[key].refused("is not supported in a build")
            contexts = [parts[key] for key in ("context",) if key in parts]
        for context in contexts:
            if not self._is_inside(self._walk.text(context)):
                raise context.refused("is outside the repository")

    def _check_deploy(self, deploy: Mapping[str, Item]) -> None:
        for key, problem in _NEVER_IN_DEPLOY.items():
            # Compose itself writes empty ones into what it resolves.
            if key in deploy and not deploy[key].is_empty:
                raise deploy[key].refused(problem)
        if self._walk.text_at(deploy, "mode") not in ("", "replicated"):
            raise deploy["mode"].refused(f"{_ONLY_SWARM}; a workload runs on one node")

    def _is_false(self, item: Item) -> bool:
        return isinstance(item.node, ScalarNode) and self._walk.text(item).lower() == "false"

    def _is_inside(self, path: str) -> bool:
        place = normpath(path)
        return bool(self._inside) and f"{place}/".startswith(f"{self._inside}/")
