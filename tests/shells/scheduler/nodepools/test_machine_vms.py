"""Machines of the provider `libvirt` as VM workloads of a real scheduler."""

from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.spec import CloudInit, Disk, Network, VMSpec
from persys.model.status import Status
from persys.providers.port import MachineWorkload
from persys.scheduler.nodepools.provision import MachineVms
from shells.scheduler.harness import Cluster

NAME = WorkloadId("default-burst-1")
TOKEN = "join-token-of-the-machine"
TAGS = {"persys-pool": "burst", "persys-machine": NAME}
SPEC = VMSpec(
    vcpus=1,
    memory_mb=1024,
    disks=(Disk(size_gb=8, device="vda", boot=True),),
    networks=(Network(name="default", dhcp=True),),
    cloud_init=CloudInit(user_data=f"#cloud-config\n# {TOKEN}\n"),
)


def vms_of(cluster: Cluster) -> MachineVms:
    return MachineVms(cluster.app.cluster, cluster.app.reconciler, cluster.clock)


def a_machine(**labels: str) -> MachineWorkload:
    return MachineWorkload(NAME, SPEC, TAGS, Resources(1000, 1024, 0), labels)


async def test_a_machine_is_applied_listed_and_deleted(cluster: Cluster) -> None:
    node = await cluster.join("n1", types=("vm",))
    vms = vms_of(cluster)

    await vms.apply(a_machine())
    await cluster.control.until(NAME, "Running")

    [found] = await vms.machines({"persys-pool": "burst"})
    assert (found.id, found.metadata, found.status) == (NAME, TAGS, Status.RUNNING)
    assert found.resources == Resources(1000, 1024, 0)
    assert await vms.machines({"persys-pool": "other"}) == []
    [order] = node.agent.applies
    assert TOKEN in str(order)
    await vms.delete(NAME)
    await cluster.control.until_gone(NAME)
    assert await vms.machines({}) == []
    await vms.delete(NAME)


async def test_a_repeated_apply_changes_nothing(cluster: Cluster) -> None:
    node = await cluster.join("n1", types=("vm",))
    vms = vms_of(cluster)
    await vms.apply(a_machine())
    await cluster.control.until(NAME, "Running")

    await vms.apply(a_machine())
    await cluster.control.until(NAME, "Running")

    assert node.agent.starts == [NAME]


async def test_a_machine_runs_only_on_a_node_with_its_labels(cluster: Cluster) -> None:
    await cluster.join("n1", types=("vm",))
    vms = vms_of(cluster)

    await vms.apply(a_machine(region="eu"))

    view = await cluster.control.until(NAME, "Pending")
    assert "region = eu" in view.reason.message
    [found] = await vms.machines(TAGS)
    assert found.status is Status.PENDING


async def test_the_join_token_of_a_machine_is_not_shown(cluster: Cluster) -> None:
    await cluster.join("n1", types=("vm",))
    await vms_of(cluster).apply(a_machine())

    view = await cluster.control.until(NAME, "Running")

    assert view.spec.type == "vm"
    assert TOKEN not in str(view)
