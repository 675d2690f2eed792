"""Specs of users are decoded into the model, or refused with the field."""

import json
from base64 import b64encode

import pytest

from persys.errors import InvalidError
from persys.model.placement import Resources
from persys.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    Disk,
    Login,
    ManagedVolume,
    Network,
    Port,
    PullPolicy,
    RestartPolicy,
    StackNeeds,
    VMSpec,
    VolumeMount,
)
from persys.wire.control.spec_decode import VM_SPEC_KEY, workload_spec
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.spec.checks import SPEC_BYTES_MAX

COMPOSE_FILE = "services:\n  web:\n    image: nginx\n"


def a_container(**fields: object) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(container=pb.ContainerSpec(**{"image": "nginx", **fields}))  # type: ignore[arg-type]  # free by intent


def a_stack(**fields: object) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(compose=pb.ComposeSpec(**fields))  # type: ignore[arg-type]  # free by intent


A_KEY = f"ssh-ed25519 {'A' * 68}"
A_HASH = "$6$salt$" + "x" * 86


def a_machine(**fields: object) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(vm=pb.VMSpec(**{"vcpus": 2, "memory_mb": 512, **fields}))  # type: ignore[arg-type]  # free by intent


def a_machine_in_metadata(machine: object) -> pb.WorkloadSpec:
    text = machine if isinstance(machine, str) else encoded(json.dumps(machine))
    return pb.WorkloadSpec(type="vm", metadata={VM_SPEC_KEY: text})


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def a_volume(**fields: object) -> pb.ManagedVolumeSpec:
    return pb.ManagedVolumeSpec(**{"name": "data", "mount_path": "/data", **fields})  # type: ignore[arg-type]  # free by intent


def with_resources(**amounts: int) -> pb.WorkloadSpec:
    message = a_container()
    message.resources.CopyFrom(pb.ResourceRequirements(**amounts))
    return message


def a_port(host_port: int, container_port: int = 80, protocol: str = "") -> pb.Port:
    return pb.Port(host_port=host_port, container_port=container_port, protocol=protocol)


def a_mount(host_path: str = "/srv", container_path: str = "/data") -> pb.VolumeMount:
    return pb.VolumeMount(host_path=host_path, container_path=container_path)


BOTH_SPECS = pb.WorkloadSpec(
    container=pb.ContainerSpec(image="nginx"), metadata={VM_SPEC_KEY: encoded("{}")}
)
A_MAC_OF_FIVE = {"vcpus": 1, "memory_mb": 1, "networks": [{"mac_address": "52:54:00:00:01"}]}
A_DISK_LIKE = {"vcpus": 1, "memory_mb": 1}

WRONG = {
    "nothing": (pb.WorkloadSpec(), "spec"),
    "an unknown type": (pb.WorkloadSpec(type="pod"), "spec.type"),
    "a type without its spec": (pb.WorkloadSpec(type="vm"), "spec.vm"),
    "another type than its spec": (
        pb.WorkloadSpec(type="vm", container=pb.ContainerSpec(image="nginx")),
        "spec.type",
    ),
    "an empty image": (a_container(image=""), "spec.container.image"),
    "a blank image": (a_container(image="  "), "spec.container.image"),
    "negative cpu": (with_resources(cpu_millicores=-1), "spec.resources.cpu_millicores"),
    "absurd cpu": (with_resources(cpu_millicores=10_000_001), "spec.resources.cpu_millicores"),
    "negative memory": (with_resources(memory_mb=-1), "spec.resources.memory_mb"),
    "absurd memory": (with_resources(memory_mb=(1 << 30) + 1), "spec.resources.memory_mb"),
    "negative disk": (with_resources(disk_gb=-1), "spec.resources.disk_gb"),
    "absurd disk": (with_resources(disk_gb=1_000_000_001), "spec.resources.disk_gb"),
    "a host port too high": (
        a_container(ports=[a_port(80), a_port(65536)]),
        "spec.container.ports[1].host_port",
    ),
    "a negative host port": (a_container(ports=[a_port(-1)]), "spec.container.ports[0].host_port"),
    "no container port": (
        a_container(ports=[a_port(80, 0)]),
        "spec.container.ports[0].container_port",
    ),
    "a container port too high": (
        a_container(ports=[a_port(80, 65536)]),
        "spec.container.ports[0].container_port",
    ),
    "an unknown protocol": (
        a_container(ports=[a_port(80, 80, "sctp")]),
        "spec.container.ports[0].protocol",
    ),
    "a host port twice": (
        a_container(ports=[a_port(80, 80), a_port(80, 81, "TCP")]),
        "spec.container.ports[1].host_port",
    ),
    "a relative host path": (
        a_container(volumes=[a_mount("srv")]),
        "spec.container.volumes[0].host_path",
    ),
    "a host path that climbs": (
        a_container(volumes=[a_mount("/srv/../etc")]),
        "spec.container.volumes[0].host_path",
    ),
    "a relative container path": (
        a_container(volumes=[a_mount("/srv", "data")]),
        "spec.container.volumes[0].container_path",
    ),
    "a container path that climbs": (
        a_container(volumes=[a_mount("/srv", "/data/..")]),
        "spec.container.volumes[0].container_path",
    ),
    "the root as a container path": (
        a_container(volumes=[a_mount("/srv", "//")]),
        "spec.container.volumes[0].container_path",
    ),
    "a container path twice": (
        a_container(volumes=[a_mount("/a", "/data"), a_mount("/b", "/data/")]),
        "spec.container.volumes[1].container_path",
    ),
    "a volume where a mount is": (
        a_container(volumes=[a_mount("/a", "/data")], managed_volumes=[a_volume()]),
        "spec.container.managed_volumes[0].mount_path",
    ),
    "a volume without a place": (
        a_container(managed_volumes=[a_volume(mount_path="")]),
        "spec.container.managed_volumes[0].mount_path",
    ),
    "a relative mount path": (
        a_container(managed_volumes=[a_volume(mount_path="data")]),
        "spec.container.managed_volumes[0].mount_path",
    ),
    "a volume name of two words": (
        a_container(managed_volumes=[a_volume(name="my data")]),
        "spec.container.managed_volumes[0].name",
    ),
    "an unknown driver": (
        a_container(managed_volumes=[a_volume(driver="zfs")]),
        "spec.container.managed_volumes[0].driver",
    ),
    "a negative volume": (
        a_container(managed_volumes=[a_volume(size_gb=-1)]),
        "spec.container.managed_volumes[0].size_gb",
    ),
    "an unknown retain policy": (
        a_container(managed_volumes=[a_volume(retain_policy="Recycle")]),
        "spec.container.managed_volumes[0].retain_policy",
    ),
    "a file system that is a path": (
        a_container(managed_volumes=[a_volume(fs_type="ext4/../x")]),
        "spec.container.managed_volumes[0].fs_type",
    ),
    "an unknown restart policy": (
        a_container(restart_policy="sometimes"),
        "spec.container.restart_policy",
    ),
    "retries that are no number": (
        a_container(restart_policy="on-failure:many"),
        "spec.container.restart_policy",
    ),
    "retries of another policy": (
        a_container(restart_policy="always:3"),
        "spec.container.restart_policy",
    ),
    "an unknown pull policy": (
        a_container(image_pull_policy="Daily"),
        "spec.container.image_pull_policy",
    ),
    "an empty variable": (a_container(env={"": "x"}), "spec.container.env"),
    "a variable with an equals sign": (
        a_container(env={"A=B": "x"}),
        "spec.container.env['A=B']",
    ),
    "a variable with a NUL": (a_container(env={"A\0": "x"}), "spec.container.env['A\\x00']"),
    "a value with a NUL": (a_container(env={"A": "\0"}), "spec.container.env['A']"),
    "a command with a NUL": (a_container(command=["a", "\0"]), "spec.container.command[1]"),
    "an argument with a NUL": (a_container(args=["\0"]), "spec.container.args[0]"),
    "an empty label": (a_container(labels={"": "x"}), "spec.container.labels"),
    "a label of ours": (
        a_container(labels={"persys.workload_id": "x"}),
        "spec.container.labels['persys.workload_id']",
    ),
    "negative pids": (a_container(pids_max=-1), "spec.container.pids_max"),
    "a negative stop grace": (
        a_container(stop_grace_seconds=-1),
        "spec.container.stop_grace_seconds",
    ),
    "a stack without a source": (a_stack(), "spec.compose"),
    "an unknown source": (
        a_stack(source_type="svn", inline_yaml=COMPOSE_FILE),
        "spec.compose.source_type",
    ),
    "a git stack without a repository": (a_stack(source_type="git"), "spec.compose.git_repo"),
    "a repository like an option": (
        a_stack(git_repo="--upload-pack=touch"),
        "spec.compose.git_repo",
    ),
    "a ref like an option": (
        a_stack(git_repo="https://example.org/a.git", git_ref="-x"),
        "spec.compose.git_ref",
    ),
    "an inline stack without a text": (a_stack(source_type="inline"), "spec.compose.inline_yaml"),
    "a stack from two sources": (
        a_stack(inline_yaml=COMPOSE_FILE, git_repo="https://example.org/a.git"),
        "spec.compose.git_repo",
    ),
    "a git stack with a text": (
        a_stack(source_type="git", inline_yaml=COMPOSE_FILE, git_repo="https://example.org/a"),
        "spec.compose.inline_yaml",
    ),
    "no YAML": (a_stack(inline_yaml="services: ["), "spec.compose.inline_yaml"),
    "YAML that is a list": (a_stack(inline_yaml="- services"), "spec.compose.inline_yaml"),
    "YAML without services": (a_stack(inline_yaml="version: '3'"), "spec.compose.inline_yaml"),
    "services that are none": (a_stack(inline_yaml="services: all"), "spec.compose.inline_yaml"),
    "services further down": (
        a_stack(inline_yaml="x:\n  services: {}"),
        "spec.compose.inline_yaml",
    ),
    "two documents": (
        a_stack(inline_yaml=f"{COMPOSE_FILE}---\n{COMPOSE_FILE}"),
        "spec.compose.inline_yaml",
    ),
    "base64 of no Compose file": (
        a_stack(inline_yaml=encoded("- services")),
        "spec.compose.inline_yaml",
    ),
    "a stack's variable with an equals sign": (
        a_stack(inline_yaml=COMPOSE_FILE, env={"A=B": ""}),
        "spec.compose.env['A=B']",
    ),
    "a machine without vcpus": (a_machine(vcpus=0), "spec.vm.vcpus"),
    "a machine without memory": (a_machine(memory_mb=0), "spec.vm.memory_mb"),
    "a negative disk of a machine": (
        a_machine(disks=[pb.DiskConfig(size_gb=-1)]),
        "spec.vm.disks[0].size_gb",
    ),
    "a device that is a path": (
        a_machine(disks=[pb.DiskConfig(mount_point="/var")]),
        "spec.vm.disks[0].mount_point",
    ),
    "a device twice": (
        a_machine(disks=[pb.DiskConfig(mount_point="vda")] * 2),
        "spec.vm.disks[1].mount_point",
    ),
    "more disks than fit": (a_machine(disks=[pb.DiskConfig()] * 65), "spec.vm.disks"),
    "more networks than fit": (a_machine(networks=[pb.NetworkConfig()] * 65), "spec.vm.networks"),
    "an address that is none": (
        a_machine(networks=[pb.NetworkConfig(static_ip="10.0.0.300")]),
        "spec.vm.networks[0].static_ip",
    ),
    "a machine in metadata that is no base64": (
        a_machine_in_metadata("{}"),
        f"spec.metadata[{VM_SPEC_KEY}]",
    ),
    "a machine in metadata that is no JSON": (
        a_machine_in_metadata(encoded("vcpus: 1")),
        f"spec.metadata[{VM_SPEC_KEY}]",
    ),
    "a machine in metadata with an unknown field": (
        a_machine_in_metadata({"vcpus": 1, "memory_mb": 1, "gpus": 1}),
        f"spec.metadata[{VM_SPEC_KEY}]",
    ),
    "a machine in metadata beside a container": (BOTH_SPECS, f"spec.metadata[{VM_SPEC_KEY}]"),
    "a machine in metadata without memory": (
        a_machine_in_metadata({"vcpus": 1}),
        f"spec.metadata[{VM_SPEC_KEY}].memory_mb",
    ),
    "a short MAC address": (
        a_machine_in_metadata(A_MAC_OF_FIVE),
        f"spec.metadata[{VM_SPEC_KEY}].networks[0].mac_address",
    ),
    "an unknown disk format": (
        a_machine_in_metadata({**A_DISK_LIKE, "disks": [{"format": "vmdk"}]}),
        f"spec.metadata[{VM_SPEC_KEY}].disks[0].format",
    ),
    "an unknown disk type": (
        a_machine_in_metadata({**A_DISK_LIKE, "disks": [{"type": "floppy"}]}),
        f"spec.metadata[{VM_SPEC_KEY}].disks[0].type",
    ),
    "a relative disk path": (
        a_machine_in_metadata({**A_DISK_LIKE, "disks": [{"path": "a.qcow2"}]}),
        f"spec.metadata[{VM_SPEC_KEY}].disks[0].path",
    ),
    "a disk both in a pool and at a path": (
        a_machine_in_metadata(
            {
                **A_DISK_LIKE,
                "disks": [{"path": "/a.qcow2", "device": "vda"}],
                "metadata": {"persys.disk.vda.pool": "fast"},
            }
        ),
        f"spec.metadata[{VM_SPEC_KEY}].disks[0].path",
    ),
    "user data in one string that is too long": (
        a_machine_in_metadata({**A_DISK_LIKE, "cloud_init": encoded("x" * 65537)}),
        f"spec.metadata[{VM_SPEC_KEY}].cloud_init",
    ),
    "too much user data": (
        a_machine(cloud_init=pb.CloudInitConfig(user_data="x" * 65537)),
        "spec.vm.cloud_init.user_data",
    ),
    "too much meta data": (
        a_machine(cloud_init=pb.CloudInitConfig(meta_data="a: " + "x" * 16384)),
        "spec.vm.cloud_init.meta_data",
    ),
    "meta data that is a list": (
        a_machine(cloud_init=pb.CloudInitConfig(meta_data="- a")),
        "spec.vm.cloud_init.meta_data",
    ),
    "a network configuration that is no YAML": (
        a_machine(cloud_init=pb.CloudInitConfig(network_config="a: [")),
        "spec.vm.cloud_init.network_config",
    ),
    "a machine's restart policy": (a_machine(restart_policy="never"), "spec.vm.restart_policy"),
    "a negative grace of a machine": (
        a_machine(stop_grace_seconds=-1),
        "spec.vm.stop_grace_seconds",
    ),
    "a plain password": (
        a_machine(login=pb.VMLogin(password_hash="secret")),
        "spec.vm.login.password_hash",
    ),
    "a public key of two lines": (
        a_machine(login=pb.VMLogin(ssh_keys=[A_KEY, f"{A_KEY}\n{A_KEY}"])),
        "spec.vm.login.ssh_keys[1]",
    ),
    "a private key": (
        a_machine(login=pb.VMLogin(ssh_keys=["-----BEGIN OPENSSH PRIVATE KEY-----"])),
        "spec.vm.login.ssh_keys[0]",
    ),
    "a user with a colon": (
        a_machine(login=pb.VMLogin(user="a:b", ssh_keys=[A_KEY])),
        "spec.vm.login.user",
    ),
    "a user who cannot log in": (a_machine(login=pb.VMLogin(user="ann")), "spec.vm.login"),
    "an image with a path": (a_machine(os_image="../etc/passwd"), "spec.vm.os_image"),
    "an image by ftp": (a_machine(os_image="ftp://example.org/a"), "spec.vm.os_image"),
    "an image's address with a password": (
        a_machine(os_image="https://a:b@example.org/a"),
        "spec.vm.os_image",
    ),
    "a pool with a slash": (
        a_machine(disks=[pb.DiskConfig(pool_name="a/b")]),
        "spec.vm.disks[0].pool_name",
    ),
    "a bridge with a blank": (
        a_machine(networks=[pb.NetworkConfig(bridge="br 0")]),
        "spec.vm.networks[0].bridge",
    ),
    "a gateway without an address": (
        a_machine(networks=[pb.NetworkConfig(gateway="10.0.0.1")]),
        "spec.vm.networks[0].gateway",
    ),
    "a gateway of another family": (
        a_machine(networks=[pb.NetworkConfig(static_ip="10.0.0.2", gateway="fd00::1")]),
        "spec.vm.networks[0].gateway",
    ),
    "a nameserver that is a name": (
        a_machine(networks=[pb.NetworkConfig(nameservers=["10.0.0.1", "dns"])]),
        "spec.vm.networks[0].nameservers[1]",
    ),
    "a MAC address of many": (
        a_machine(networks=[pb.NetworkConfig(mac_address="01:00:5e:00:00:01")]),
        "spec.vm.networks[0].mac_address",
    ),
    "a MAC address twice": (
        a_machine(networks=[pb.NetworkConfig(mac_address="52:54:00:00:00:01")] * 2),
        "spec.vm.networks[1].mac_address",
    ),
    "a machine name of two words": (
        a_machine_in_metadata({**A_DISK_LIKE, "name": "my vm"}),
        f"spec.metadata[{VM_SPEC_KEY}].name",
    ),
}


@pytest.mark.parametrize(("message", "field"), WRONG.values(), ids=WRONG.keys())
def test_an_invalid_value_is_refused_with_its_field(message: pb.WorkloadSpec, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        workload_spec(message)

    assert refused.value.field == field


def test_an_error_names_the_expected_values() -> None:
    with pytest.raises(InvalidError) as refused:
        workload_spec(a_container(ports=[a_port(80), a_port(70000)]))

    assert str(refused.value) == "spec.container.ports[1].host_port: is 70000; expected 0 to 65535"


def test_a_spec_over_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidError) as refused:
        workload_spec(a_container(env={"A": "x" * 2 * 1024 * 1024}))

    assert str(refused.value) == "spec: is 2.0 MiB; the limit is 512 KiB"


def test_a_spec_just_under_the_limit_is_accepted() -> None:
    message = a_container(env={"A": "x" * (SPEC_BYTES_MAX - 100)})

    assert workload_spec(message)[0]


@pytest.mark.parametrize("text", ["services: " + "{a: " * 100_000, "services:\n " + "- " * 200_000])
def test_a_deeply_nested_compose_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="nested more than 64 levels"):
        workload_spec(a_stack(inline_yaml=text))


def test_a_whole_container_is_read() -> None:
    message = a_container(
        command=["sh", "-c"],
        args=["sleep 1"],
        env={"A": "1"},
        volumes=[pb.VolumeMount(host_path="/srv", container_path="/srv", read_only=True)],
        ports=[a_port(8080, 80, "UDP"), a_port(0, 81)],
        restart_policy="on-failure:3",
        privileged=True,
        managed_volumes=[
            a_volume(
                driver="NFS",
                size_gb=2,
                access_mode="rwx",
                fs_type="ext4",
                read_only=True,
                retain_policy="retain",
            )
        ],
        image_pull_policy="always",
        pids_max=10,
        stop_grace_seconds=5,
        init=True,
        labels={"team": "a"},
    )

    spec, _, _ = workload_spec(message)

    assert spec == ContainerSpec(
        image="nginx",
        command=("sh", "-c"),
        args=("sleep 1",),
        env={"A": "1"},
        volumes=(VolumeMount("/srv", "/srv", read_only=True),),
        managed_volumes=(
            ManagedVolume("data", "/data", "nfs", 2, "rwx", "ext4", read_only=True, retain=True),
        ),
        ports=(Port(80, 8080, "udp"), Port(81)),
        restart=RestartPolicy("on-failure", 3),
        privileged=True,
        pull_policy=PullPolicy.ALWAYS,
        pids_max=10,
        stop_grace_seconds=5,
        init=True,
        labels={"team": "a"},
    )


def test_a_host_port_may_serve_both_protocols() -> None:
    message = a_container(ports=[a_port(53, 53, "tcp"), a_port(53, 53, "udp")])

    assert workload_spec(message)[0]


def test_any_number_of_ports_may_have_no_host_port() -> None:
    assert workload_spec(a_container(ports=[a_port(0, 80), a_port(0, 81)]))[0]


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("", RestartPolicy("unless-stopped")),
        ("no", RestartPolicy("no")),
        ("Always", RestartPolicy("always")),
        ("on-failure", RestartPolicy("on-failure")),
        ("ON_FAILURE", RestartPolicy("on-failure")),
        ("on-failure:5", RestartPolicy("on-failure", 5)),
        ("unless_stopped", RestartPolicy("unless-stopped")),
    ],
)
def test_restart_policies_are_read_in_any_spelling(word: str, policy: RestartPolicy) -> None:
    spec, _, _ = workload_spec(a_container(restart_policy=word))

    assert isinstance(spec, ContainerSpec)
    assert spec.restart == policy


@pytest.mark.parametrize(
    ("word", "retain"), [("", False), ("Delete", False), ("RETAIN", True), ("retain", True)]
)
def test_only_retain_keeps_a_volume(word: str, *, retain: bool) -> None:
    spec, _, _ = workload_spec(a_container(managed_volumes=[a_volume(retain_policy=word)]))

    assert isinstance(spec, ContainerSpec)
    assert spec.managed_volumes[0].retain is retain


@pytest.mark.parametrize("spec_type", ["", "container", "Container"])
def test_the_type_defaults_to_that_of_the_spec(spec_type: str) -> None:
    message = a_container()
    message.type = spec_type

    assert isinstance(workload_spec(message)[0], ContainerSpec)


def test_resources_and_metadata_are_read() -> None:
    message = with_resources(cpu_millicores=500, memory_mb=64, disk_gb=1)
    message.metadata["team"] = "a"

    _, resources, metadata = workload_spec(message)

    assert (resources, metadata) == (Resources(500, 64, 1), {"team": "a"})


@pytest.mark.parametrize(
    "text",
    [
        COMPOSE_FILE,
        encoded(COMPOSE_FILE),
        "\n".join(encoded(COMPOSE_FILE)[i : i + 8] for i in range(0, 80, 8)),
    ],
    ids=["plain", "base64", "wrapped base64"],
)
@pytest.mark.parametrize("source_type", ["", "inline", "Inline"])
def test_an_inline_stack_is_kept_as_plain_text(text: str, source_type: str) -> None:
    spec, _, _ = workload_spec(a_stack(source_type=source_type, inline_yaml=text, env={"A": "1"}))

    assert spec == ComposeSpec("inline", yaml=COMPOSE_FILE, env={"A": "1"})


@pytest.mark.parametrize("source_type", ["", "git", "GIT"])
def test_a_stack_from_git_needs_no_text(source_type: str) -> None:
    message = a_stack(source_type=source_type, git_repo="https://example.org/a.git", git_ref="v1")

    spec, _, _ = workload_spec(message)

    assert spec == ComposeSpec(
        "git",
        git_repo="https://example.org/a.git",
        git_ref="v1",
        needs=StackNeeds(holds_data=True),  # not known yet
    )


def test_services_may_come_after_anchors_and_be_an_alias() -> None:
    text = "x-all: &all\n  web: {image: nginx}\nservices: *all\n"

    spec, _, _ = workload_spec(a_stack(inline_yaml=text))

    assert isinstance(spec, ComposeSpec)
    assert spec.yaml == text


def test_a_complete_vm_spec_is_decoded() -> None:
    message = a_machine(
        disks=[pb.DiskConfig(pool_name="fast", size_gb=10, mount_point="vda")],
        networks=[pb.NetworkConfig(bridge="br0", dhcp=True, static_ip="10.0.0.2/24")],
        cloud_init=pb.CloudInitConfig(
            user_data="u", meta_data="m: 1", network_config="n: 1", vendor_data="v"
        ),
        os_image="debian-12",
        managed_volumes=[a_volume(mount_path="")],
    )

    spec, _, _ = workload_spec(message)

    assert spec == VMSpec(
        vcpus=2,
        memory_mb=512,
        disks=(Disk("fast", 10, "vda"),),
        networks=(Network("br0", dhcp=True, ip_address="10.0.0.2/24"),),
        cloud_init=CloudInit("u", "m: 1", "n: 1", "v"),
        os_image="debian-12",
        managed_volumes=(ManagedVolume("data"),),
    )


def test_our_own_vm_fields_are_read() -> None:
    message = a_machine(
        networks=[
            pb.NetworkConfig(
                bridge="br0",
                static_ip="10.0.0.2",
                mac_address="52:54:00:AA:00:01",
                gateway="10.0.0.1",
                nameservers=["10.0.0.1", "fd00::1"],
            )
        ],
        os_image="https://example.org/debian.qcow2",
        restart_policy="on_failure:3",
        stop_grace_seconds=90,
        login=pb.VMLogin(user="ann", ssh_keys=[f" {A_KEY} ann@here\n"], password_hash=A_HASH),
    )

    spec, _, _ = workload_spec(message)

    assert spec == VMSpec(
        vcpus=2,
        memory_mb=512,
        networks=(
            Network(
                "br0",
                ip_address="10.0.0.2",
                mac_address="52:54:00:aa:00:01",
                gateway="10.0.0.1",
                nameservers=("10.0.0.1", "fd00::1"),
            ),
        ),
        os_image="https://example.org/debian.qcow2",
        restart=RestartPolicy("on-failure", 3),
        stop_grace_seconds=90,
        login=Login("ann", (f"{A_KEY} ann@here",), A_HASH),
    )


def test_the_resources_of_a_vm_default_to_its_vcpus_and_memory() -> None:
    _, resources, _ = workload_spec(a_machine(vcpus=2, memory_mb=512))

    assert resources == Resources(2000, 512)


def test_a_vm_may_request_less_cpu_than_its_vcpus() -> None:
    message = a_machine(vcpus=2, memory_mb=512)
    message.resources.cpu_millicores = 500

    assert workload_spec(message)[1] == Resources(500, 512)


def test_a_vm_in_the_metadata_replaces_the_field_and_is_removed_there() -> None:
    machine = {
        "name": "web-vm",
        "vcpus": 4,
        "memory_mb": 8192,
        "disks": [{"path": "/images/web.qcow2", "device": "vda", "format": "qcow2", "size_gb": 50}],
        "networks": [
            {
                "network": "default",
                "mac_address": "52:54:00:AB:34:56",
                "ip_address": "192.168.122.100",
            }
        ],
        "cloud_init": encoded("#cloud-config"),
    }
    message = a_machine(vcpus=1, memory_mb=1)
    message.metadata[VM_SPEC_KEY] = encoded(json.dumps(machine))
    message.metadata["team"] = "a"

    spec, resources, metadata = workload_spec(message)

    assert spec == VMSpec(
        vcpus=4,
        memory_mb=8192,
        disks=(Disk(size_gb=50, device="vda", path="/images/web.qcow2", format="qcow2"),),
        networks=(
            Network("default", ip_address="192.168.122.100", mac_address="52:54:00:ab:34:56"),
        ),
        cloud_init_base64=encoded("#cloud-config"),
        name="web-vm",
    )
    assert resources == Resources(4000, 8192)
    assert metadata == {"team": "a"}


def test_a_vm_may_have_both_user_data_fields() -> None:
    message = a_machine_in_metadata(
        {
            **A_DISK_LIKE,
            "cloud_init": encoded("#cloud-config"),
            "cloud_init_config": {"user_data": "#!/bin/sh"},
        }
    )

    spec = workload_spec(message)[0]

    assert isinstance(spec, VMSpec)
    assert spec.cloud_init.user_data == "#!/bin/sh"
    assert spec.cloud_init_base64 == encoded("#cloud-config")


def test_a_vm_is_encoded_in_the_agents_form_only_when_needed() -> None:
    plain = VMSpec(vcpus=1, memory_mb=1, disks=(Disk("fast", 1),))
    special = VMSpec(vcpus=1, memory_mb=1, disks=(Disk(path="/a.qcow2"),))

    assert VM_SPEC_KEY not in spec_message(plain, Resources(), {}).metadata
    assert workload_spec(spec_message(special, Resources(1000, 1), {}))[0] == special
