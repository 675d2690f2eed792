"""What this node lets a workload ask for. A no names the field, so that the user can change it."""

import os
from dataclasses import dataclass
from pathlib import Path

from persys.agent.runtimes.docker_form import LABEL_PREFIX
from persys.errors import InvalidError
from persys.model.spec import ComposeSpec, ContainerSpec, Spec, VMSpec


@dataclass(frozen=True, slots=True)
class NodePolicy:
    allow_privileged: bool = False
    bind_roots: tuple[str, ...] = ()  # empty: any host path

    def check(self, spec: Spec) -> None:
        """Raises InvalidError."""
        if isinstance(spec, ContainerSpec):
            self._check_container(spec)
        elif isinstance(spec, VMSpec):
            self._check_machine(spec)
        elif isinstance(spec, ComposeSpec) and spec.needs.privileged and not self.allow_privileged:
            problem = "power over the node is not allowed on this one (PERSYS_ALLOW_PRIVILEGED)"
            raise InvalidError("spec.compose", problem)

    def _check_container(self, spec: ContainerSpec) -> None:
        if spec.privileged and not self.allow_privileged:
            raise InvalidError(
                "spec.container.privileged", "is not allowed on this node (PERSYS_ALLOW_PRIVILEGED)"
            )
        for label in spec.labels:
            if label.startswith(LABEL_PREFIX):
                raise InvalidError(
                    f"spec.container.labels[{label!r}]",
                    f"names in {LABEL_PREFIX} are the agent's own",
                )
        for index, mount in enumerate(spec.volumes):
            if not self.allows_path(mount.host_path):
                raise InvalidError(
                    f"spec.container.volumes[{index}].host_path",
                    f"{mount.host_path!r} is not below {', '.join(self.bind_roots)} (PERSYS_BIND_ROOTS)",
                )

    def _check_machine(self, spec: VMSpec) -> None:
        for index, disk in enumerate(spec.disks):
            if disk.path and not self.allows_path(disk.path):
                raise InvalidError(
                    f"spec.vm.disks[{index}].path",
                    f"{disk.path!r} is not below {', '.join(self.bind_roots)} (PERSYS_BIND_ROOTS)",
                )

    def allows_path(self, host_path: str) -> bool:
        if not self.bind_roots:
            return True
        # A link below an allowed root may lead out of it.
        real = Path(os.path.realpath(host_path))
        return any(real.is_relative_to(os.path.realpath(root)) for root in self.bind_roots)
