"""The provider `libvirt`: machines as VM workloads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from persys.errors import (
    AgentUnreachableError,
    InvalidError,
    PersysError,
    ProviderRefusedError,
    ProviderUnavailableError,
)
from persys.model.ids import WorkloadId
from persys.model.nodepool import MachineSize
from persys.model.placement import Resources
from persys.model.status import Status
from persys.providers.libvirt import LibvirtProvider
from persys.providers.port import InstanceState, MachineRequest, MachineWorkload

TAGS = {"persys-pool": "p", "persys-machine": "c-p-1"}
REQUEST = MachineRequest(
    "c-p-1", TAGS, "small", "debian", "eu", "#cloud-config\n", {"network": "lab"}
)
SIZES = [MachineSize("small", Resources(1500, 2048, 20), 0.0)]


@dataclass
class FakeWorkloads:
    stored: dict[str, MachineWorkload] = field(default_factory=dict)
    error: PersysError | None = None

    async def machines(self, metadata: Mapping[str, str]) -> list[MachineWorkload]:
        self._fail()
        return [each for each in self.stored.values() if metadata.items() <= each.metadata.items()]

    async def apply(self, machine: MachineWorkload) -> None:
        self._fail()
        assert machine.id not in self.stored
        self.stored[machine.id] = machine

    async def delete(self, workload_id: WorkloadId) -> None:
        self._fail()
        self.stored.pop(workload_id, None)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


async def test_a_machine_is_a_vm_workload_for_a_node_of_its_size() -> None:
    workloads = FakeWorkloads()
    provider = LibvirtProvider(workloads, sizes=SIZES)

    await provider.create(REQUEST)

    machine = workloads.stored["c-p-1"]
    assert (machine.spec.vcpus, machine.spec.memory_mb) == (2, 2560)
    assert machine.spec.disks[0].size_gb == 24
    assert machine.spec.networks[0].name == "lab"
    assert machine.spec.cloud_init.user_data == "#cloud-config\n"
    assert machine.resources == Resources(1500, 2560, 24)
    assert machine.required_labels == {"region": "eu"}


async def test_a_repeated_create_returns_the_existing_workload() -> None:
    provider = LibvirtProvider(FakeWorkloads(), sizes=SIZES)

    assert await provider.create(REQUEST) == await provider.create(REQUEST)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.PENDING, InstanceState.PENDING),
        (Status.RUNNING, InstanceState.RUNNING),
        (Status.UNKNOWN, InstanceState.RUNNING),
        (Status.FAILED, InstanceState.STOPPED),
        (Status.DELETING, InstanceState.STOPPING),
    ],
)
async def test_the_status_of_the_workload_is_the_state_of_the_machine(
    status: Status, state: InstanceState
) -> None:
    workloads = FakeWorkloads()
    provider = LibvirtProvider(workloads, sizes=SIZES)
    await provider.create(REQUEST)
    workloads.stored["c-p-1"] = replace(workloads.stored["c-p-1"], status=status)

    [found] = await provider.instances({"persys-pool": "p"})

    assert found.state == state


async def test_a_machine_is_destroyed_with_its_workload() -> None:
    workloads = FakeWorkloads()
    provider = LibvirtProvider(workloads, sizes=SIZES)
    created = await provider.create(REQUEST)

    await provider.destroy(created.provider_id)
    await provider.destroy(created.provider_id)

    assert workloads.stored == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AgentUnreachableError("no answer"), ProviderUnavailableError),
        (InvalidError("spec", "is wrong"), ProviderRefusedError),
    ],
)
async def test_errors_of_the_cluster_are_errors_of_the_provider(
    error: PersysError, expected: type[PersysError]
) -> None:
    workloads = FakeWorkloads()
    provider = LibvirtProvider(workloads, sizes=SIZES)
    workloads.error = error

    with pytest.raises(expected, match=str(error)):
        await provider.destroy("c-p-1")


@pytest.mark.parametrize("wrong", [replace(REQUEST, size="huge"), replace(REQUEST, name="A_B")])
async def test_a_wrong_request_is_refused(wrong: MachineRequest) -> None:
    provider = LibvirtProvider(FakeWorkloads(), sizes=SIZES)

    with pytest.raises(ProviderRefusedError, match="invalid"):
        await provider.create(wrong)
