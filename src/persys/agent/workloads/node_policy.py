"""The node policy: which specs this node accepts. A refusal names the field, the value and the setting.

Only the text of the spec is checked here. Paths are opened later, by the step that uses them, because a file
system may not respond, and because a symbolic link can be swapped in at any time.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import assert_never
from urllib.parse import urlsplit

from persys.agent.runtimes.docker.mapping import LABEL_PREFIX
from persys.agent.runtimes.host_paths import HostBind
from persys.agent.settings import AgentSettings
from persys.core.agent.compose_policy import SYSTEM_DIRECTORIES, problem_with, root_of
from persys.errors import InvalidError
from persys.model.spec import ComposeSpec, ContainerSpec, Spec, VMSpec

_PRIVILEGED = "is not allowed on this node (PERSYS_ALLOW_PRIVILEGED)"


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """`protected`: paths that workloads must not use unless `bind_roots` lists them."""

    allow_privileged: bool
    bind_roots: tuple[str, ...]
    protected: tuple[str, ...]

    def check(self, spec: Spec) -> None:
        """Raises InvalidError."""
        match spec:
            case ContainerSpec():
                self._check_container(spec)
            case VMSpec():
                self._check_vm(spec)
            case ComposeSpec():
                if spec.needs.privileged and not self.allow_privileged:
                    raise InvalidError(f"spec.compose: {spec.needs.privileged_by}", _PRIVILEGED)
            case unreachable:
                assert_never(unreachable)

    def violation(self, spec: Spec) -> str:
        """Why this node refuses the spec; "" if it accepts it."""
        try:
            self.check(spec)
        except InvalidError as err:
            return str(err)
        return ""

    def problem_with(self, path: str) -> str:
        """Why a workload must not use this host path; "" if it may."""
        return problem_with(path, roots=self.bind_roots, protected=self.protected)

    def bind(self, source: str, target: str, *, create: bool = False) -> HostBind:
        """A bind mount of a path that `problem_with` allows, with the root that contains it."""
        plain = str(PurePosixPath(source))
        return HostBind(plain, root_of(plain, self.bind_roots), target, create)

    def _check_container(self, spec: ContainerSpec) -> None:
        if spec.privileged and not self.allow_privileged:
            raise InvalidError("spec.container.privileged", _PRIVILEGED)
        for label in spec.labels:
            if label.startswith(LABEL_PREFIX):
                raise InvalidError(
                    f"spec.container.labels[{label!r}]",
                    f"invalid label: the prefix {LABEL_PREFIX} is reserved for the agent",
                )
        for index, mount in enumerate(spec.volumes):
            self._check_path(mount.host_path, f"spec.container.volumes[{index}].host_path")

    def _check_vm(self, spec: VMSpec) -> None:
        for index, disk in enumerate(spec.disks):
            if disk.path:
                self._check_path(disk.path, f"spec.vm.disks[{index}].path")

    def _check_path(self, path: str, field: str) -> None:
        if problem := self.problem_with(path):
            raise InvalidError(field, problem)


def policy_of(settings: AgentSettings) -> NodePolicy:
    """The policy from the settings. System directories and the agent's own paths are protected."""
    own = (
        settings.state_path.parent,
        settings.credentials_dir,
        settings.vm_images_dir,
        settings.vm_disks_dir,
        settings.vm_dir,
        settings.storage_local_root,
        settings.storage_nfs_stage_dir,
        settings.storage_ceph_stage_dir,
        settings.tls_ca.parent,
        settings.tls_cert.parent,
        settings.tls_key.parent,
        Path(urlsplit(settings.docker_host).path or "/var/run/docker.sock"),
    )
    protected = dict.fromkeys((*SYSTEM_DIRECTORIES, *(str(path.absolute()) for path in own)))
    roots = tuple(str(PurePosixPath(root)) for root in settings.bind_roots)
    return NodePolicy(settings.allow_privileged, roots, tuple(protected))
