"""The node policy: privileges and host paths."""

import pytest

from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.compose_policy import SYSTEM_DIRECTORIES
from persys.errors import InvalidError
from persys.model.spec import ComposeSpec, ContainerSpec, Disk, VMSpec, VolumeMount
from persys.wire.compose.compose_file import read_inline

STATE = "/srv/agent"


def a_policy(*roots: str, allow_privileged: bool = False) -> NodePolicy:
    return NodePolicy(allow_privileged, roots, (*SYSTEM_DIRECTORIES, STATE))


def a_bind(path: str) -> ContainerSpec:
    return ContainerSpec("image", volumes=(VolumeMount(path, "/given"),))


def test_a_vm_disk_path_follows_the_rules_of_binds() -> None:
    policy = a_policy("/srv/disks")
    inside, outside = Disk(path="/srv/disks/a.qcow2"), Disk(path="/dev/null")

    policy.check(VMSpec(1, 512, disks=(inside, Disk(pool_name="fast"))))
    with pytest.raises(InvalidError) as refused:
        policy.check(VMSpec(1, 512, disks=(inside, outside)))

    assert refused.value.field == "spec.vm.disks[1].path"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc",
        "/etc/shadow",
        f"/{'root'}/.ssh",
        "/proc/1/root",
        "/sys/fs/cgroup",
        "/dev/sda",
        "/boot/vmlinuz",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/var/lib/docker/volumes",
        "/var/lib/libvirt/images",
        "/var/lib/persys/ca",
        "/var",
        "/var/lib",
        STATE,
        f"{STATE}/stacks/web",
        "/srv",
        "/srv/../etc",
        "//etc",
        "relative",
        f"/data/{'x' * 300}",
        "/data/" + "x/" * 2500,
        "/data/\0",
    ],
)
@pytest.mark.parametrize("allow_privileged", [False, True])
def test_protected_and_malformed_paths_are_refused_by_default(
    path: str, allow_privileged: bool
) -> None:
    with pytest.raises(InvalidError) as refused:
        a_policy(allow_privileged=allow_privileged).check(a_bind(path))

    assert refused.value.field == "spec.container.volumes[0].host_path"


@pytest.mark.parametrize(
    "path", ["/data", "/srv/other", "/srv/agentless", "/users/me", "/var/lib/mysql"]
)
def test_other_paths_are_allowed_by_default(path: str) -> None:
    a_policy().check(a_bind(path))


@pytest.mark.parametrize(
    ("roots", "path", "allowed"),
    [
        (("/data",), "/data", True),
        (("/data",), "/data/sub", True),
        (("/data",), "/database", False),
        (("/data",), "/srv/x", False),
        (("/etc/app",), "/etc/app/conf", True),
        (("/etc/app",), "/etc/other", False),
        (("/",), "/etc", False),
        (("/",), "/data", True),
        (("/",), "/", True),
        (("/", "/etc"), "/etc/hosts", True),
        (("/var/lib",), "/var/lib/mysql", True),
        (("/var/lib",), "/var/lib/docker", False),
    ],
)
def test_a_protected_directory_needs_its_own_bind_root(
    roots: tuple[str, ...], path: str, allowed: bool
) -> None:
    assert (a_policy(*roots).problem_with(path) == "") is allowed


def test_a_stack_is_refused_by_the_key_that_needs_a_privileged_node() -> None:
    text = "services: {web: {image: i}, db: {image: i, cap_add: [SYS_ADMIN]}}"
    spec = ComposeSpec(yaml=text, needs=read_inline(text, {}).needs)

    assert a_policy().violation(spec) == (
        "spec.compose: services.db.cap_add: is not allowed on this node (PERSYS_ALLOW_PRIVILEGED)"
    )
    assert a_policy(allow_privileged=True).violation(spec) == ""
