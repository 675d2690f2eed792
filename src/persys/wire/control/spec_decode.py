"""The spec in the control contract, decoded into the model and validated.

All checks that need no knowledge of the cluster are done here; every error names its field. A VM may be sent
as `persys.vm_spec_b64` in the metadata, in the form of the agent contract. It then replaces field 12 and is
removed from the metadata.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from persys.core.bounded_yaml import scalars
from persys.core.secrets import is_reference, parse
from persys.errors import InvalidError
from persys.model.placement import Resources, Rules
from persys.model.secret import SCHEME
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    Network,
    Spec,
    VMSpec,
    WorkloadType,
)
from persys.wire.agent import vm as agent_vm
from persys.wire.compose import source as compose_source
from persys.wire.control import placement
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks, fields, files, health, login, vm_rules

_PLACES = ("spec.container.env[", "spec.compose.env[")
_FILES = "spec.container.files["

VM_SPEC_KEY = "persys.vm_spec_b64"

_VOLUME_POLICIES = {"": False, "retain": False, "delete": True}
_TYPES = {kind.value: kind for kind in WorkloadType}


def workload_spec(message: control_pb2.WorkloadSpec) -> tuple[Spec, Resources, dict[str, str]]:
    """The spec, its resources and the user's metadata. Raises InvalidError with the first invalid field."""
    checks.size(message.ByteSize())
    _check_references(message)
    metadata = dict(message.metadata)
    encoded_vm = metadata.pop(VM_SPEC_KEY, "")
    kind = _type(message, vm_in_metadata=bool(encoded_vm))
    resources = fields.resources(message.resources, "spec.resources")
    match kind:
        case WorkloadType.CONTAINER:
            return _container(message.container), resources, metadata
        case WorkloadType.COMPOSE:
            stack = _compose(message.compose)
            _check_compose_references(stack.yaml)
            return stack, _stack_resources(stack, resources), metadata
        case WorkloadType.VM:
            path = f"spec.metadata[{VM_SPEC_KEY}]"
            spec = agent_vm.from_base64(encoded_vm, path) if encoded_vm else vm(message.vm)
            return spec, _vm_resources(spec, resources), metadata


class ParsedSpec(NamedTuple):
    """The results of `workload_spec` and `workload_rules` for one message."""

    spec: Spec
    resources: Resources
    metadata: dict[str, str]
    rules: Rules
    stop_after_seconds: int
    networks: tuple[str, ...]


def parse_spec(message: control_pb2.WorkloadSpec) -> ParsedSpec:
    return ParsedSpec(
        *workload_spec(message),
        *workload_rules(message),
        checks.networks(message.networks, "spec.networks"),
    )


def holds_yaml(message: control_pb2.WorkloadSpec) -> bool:
    """Whether parsing this spec parses YAML, which servers do off the event loop."""
    return message.HasField("compose") or message.HasField("vm") or VM_SPEC_KEY in message.metadata


def workload_rules(message: control_pb2.WorkloadSpec) -> tuple[Rules, int]:
    """The placement rules, and how long the workload runs without a scheduler (0: no limit)."""
    stop_after_seconds = checks.number(
        message.stop_after_seconds, "spec.stop_after_seconds", most=checks.STOP_AFTER_SECONDS_MAX
    )
    return placement.rules(message.placement), stop_after_seconds


def _type(message: control_pb2.WorkloadSpec, *, vm_in_metadata: bool) -> WorkloadType:
    set_spec = message.WhichOneof("workload")
    if vm_in_metadata:
        if set_spec not in (None, "vm"):
            raise InvalidError(f"spec.metadata[{VM_SPEC_KEY}]", f"conflicts with spec.{set_spec}")
        set_spec = "vm"
    named = message.type
    if not named and set_spec is None:
        raise InvalidError("spec", "is empty; expected one of container, compose and vm")
    kind = checks.word(named or str(set_spec), _TYPES, "spec.type", "container, compose or vm")
    if set_spec is None:
        raise InvalidError(f"spec.{kind}", f"is missing, but spec.type is {kind}")
    if kind != set_spec:
        raise InvalidError("spec.type", f"is {kind}, but spec.{set_spec} is set")
    return kind


def _vm_resources(spec: VMSpec, stated: Resources) -> Resources:
    """Resources that are not stated default to the vCPUs and memory of the VM."""
    return Resources(
        stated.cpu_millicores or spec.vcpus * 1000,
        stated.memory_mb or spec.memory_mb,
        stated.disk_gb,
    )


def _stack_resources(spec: ComposeSpec, stated: Resources) -> Resources:
    """Resources that are not stated default to the sum of the service limits."""
    return Resources(
        stated.cpu_millicores or min(spec.needs.cpu_millicores, checks.CPU_MILLICORES_MAX),
        stated.memory_mb or min(spec.needs.memory_mb, checks.MEMORY_MB_MAX),
        stated.disk_gb,
    )


def _container(message: control_pb2.ContainerSpec) -> ContainerSpec:
    taken: set[str] = set()
    where = "spec.container"
    return ContainerSpec(
        image=checks.image(message.image, "spec.container.image"),
        command=checks.texts(message.command, "spec.container.command"),
        args=checks.texts(message.args, "spec.container.args"),
        env=checks.env(message.env, "spec.container.env"),
        volumes=fields.mounts(message.volumes, f"{where}.volumes", taken),
        managed_volumes=fields.managed_volumes(
            message.managed_volumes, f"{where}.managed_volumes", taken, mounted=True
        ),
        ports=fields.ports(message.ports, "spec.container.ports"),
        restart=checks.restart_policy(message.restart_policy, "spec.container.restart_policy"),
        privileged=message.privileged,
        pull_policy=checks.pull_policy(
            message.image_pull_policy, "spec.container.image_pull_policy"
        ),
        pids_max=checks.number(message.pids_max, "spec.container.pids_max", most=checks.PIDS_MAX),
        stop_grace_seconds=checks.number(
            message.stop_grace_seconds,
            "spec.container.stop_grace_seconds",
            most=checks.STOP_GRACE_SECONDS_MAX,
        ),
        init=message.init,
        labels=_labels(message.labels),
        image_credential=checks.credential(message.image_credential, f"{where}.image_credential"),
        health=health.health_check(message.health_check, f"{where}.health_check"),
        files=files.of_user(message.files, f"{where}.files", taken),
    )


def _labels(values: Mapping[str, str]) -> dict[str, str]:
    labels = checks.labels(values, "spec.container.labels")
    for name in labels:
        if name.startswith("persys."):
            raise InvalidError(
                f"spec.container.labels[{checks.quoted(name)}]",
                "label names that begin with 'persys.' are reserved; use another name",
            )
    return labels


def _compose(message: control_pb2.ComposeSpec) -> ComposeSpec:
    return compose_source.compose(
        source_type=message.source_type,
        text=message.inline_yaml,
        git_repo=message.git_repo,
        git_ref=message.git_ref,
        env=message.env,
        text_field="inline_yaml",
        project_name=message.project_name,
        git_path=message.git_path,
        git_credential=message.git_credential,
        image_credential=message.image_credential,
        delete_volumes=checks.word(
            message.volume_policy,
            _VOLUME_POLICIES,
            "spec.compose.volume_policy",
            "Retain or Delete",
        ),
    )


def vm(message: control_pb2.VMSpec) -> VMSpec:
    disks = tuple(
        Disk(pool_name=disk.pool_name, size_gb=disk.size_gb, device=disk.mount_point)
        for disk in message.disks
    )
    networks = tuple(
        Network(
            name=network.bridge,
            dhcp=network.dhcp,
            ip_address=network.static_ip,
            mac_address=network.mac_address,
            gateway=network.gateway,
            nameservers=tuple(network.nameservers),
        )
        for network in message.networks
    )
    cloud_init = fields.cloud_init(message.cloud_init)
    vm_rules.cloud_init(cloud_init, "", "spec.vm", field="cloud_init")
    return vm_rules.checked(
        VMSpec(
            vcpus=message.vcpus,
            memory_mb=message.memory_mb,
            disks=disks,
            networks=networks,
            cloud_init=cloud_init,
            os_image=message.os_image,
            managed_volumes=fields.managed_volumes(
                message.managed_volumes, "spec.vm.managed_volumes", set(), mounted=False
            ),
            restart=checks.restart_policy(message.restart_policy, "spec.vm.restart_policy"),
            stop_grace_seconds=message.stop_grace_seconds,
            login=login.login(message.login, "spec.vm.login"),
            health=health.health_check(
                message.health_check, "spec.vm.health_check", health.VM_TYPES
            ),
        ),
        "spec.vm",
        device_field="mount_point",
        address_field="static_ip",
    )


def _check_references(message: control_pb2.WorkloadSpec) -> None:
    """Raises InvalidError with the first field that has an invalid or misplaced reference."""
    if SCHEME.encode() not in message.SerializeToString():
        return
    for path, text in _texts(message, "spec"):
        if not is_reference(text):
            continue
        if not path.startswith(_PLACES) and not (
            path.startswith(_FILES) and path.endswith("].content")
        ):
            raise InvalidError(
                path, "secret references are allowed only in env and in the content of files"
            )
        parse(text, path)


def _check_compose_references(text: str) -> None:
    """Raises InvalidError if a Compose file contains a reference: Compose does not resolve it."""
    if SCHEME not in text:
        return
    for scalar, line in scalars(text):
        if _holds_one(scalar):
            raise InvalidError(
                "spec.compose.inline_yaml",
                f"has {SCHEME} on line {line}; write ${{NAME}} there and set NAME "
                "to the reference in spec.compose.env",
            )


def _holds_one(scalar: str) -> bool:
    """Whether it is a reference, or NAME=reference."""
    return is_reference(scalar) or is_reference(scalar.partition("=")[2])


def _texts(message: Message, path: str) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        yield from _texts_in(value, f"{path}.{field.name}")


def _texts_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Message):
        yield from _texts(value, path)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _texts_in(value[key], f"{path}[{key!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for index, item in enumerate(value):
            yield from _texts_in(item, f"{path}[{index}]")
