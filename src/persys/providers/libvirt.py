"""The provider `libvirt`: a machine is a VM workload of this cluster.

The scheduler places the VM on a node and reserves its resources there, like those of any other workload. The
id of the workload is the name of the machine, so creating it twice has no effect.
"""

from collections.abc import Mapping, Sequence

from persys.errors import (
    InvalidError,
    ProviderRefusedError,
    ProviderUnavailableError,
    RefusedError,
    UnavailableError,
)
from persys.model.ids import WorkloadId, workload_id
from persys.model.nodepool import MachineSize
from persys.model.placement import Resources
from persys.model.spec import CloudInit, Disk, Network, VMSpec
from persys.model.status import Status
from persys.providers.port import (
    Instance,
    InstanceState,
    MachineRequest,
    MachineWorkload,
    WorkloadApi,
)

OPTIONS = frozenset({"network", "storage_pool"})
DEFAULT_NETWORK = "default"
# A size states what the node offers. The VM is larger: its system and the reserve of its agent need some.
SYSTEM_MEMORY_MB = 512
SYSTEM_DISK_GB = 4

_STATES = {
    Status.PENDING: InstanceState.PENDING,
    Status.RUNNING: InstanceState.RUNNING,
    Status.UNKNOWN: InstanceState.RUNNING,  # its node does not respond; it may run
    Status.STOPPED: InstanceState.STOPPED,
    Status.FAILED: InstanceState.STOPPED,
    Status.DELETING: InstanceState.STOPPING,
}


class LibvirtProvider:
    """Implements Provider."""

    def __init__(self, workloads: WorkloadApi, *, sizes: Sequence[MachineSize]) -> None:
        self._workloads = workloads
        self._sizes = {size.name: size for size in sizes}

    async def check(self) -> None:
        await self.instances({})

    async def create(self, request: MachineRequest) -> Instance:
        for instance in await self.instances(request.tags):
            if instance.name == request.name:
                return instance
        machine = self._machine(request)
        try:
            await self._workloads.apply(machine)
        except RefusedError as err:
            raise ProviderRefusedError(f"libvirt: {err}") from err
        except UnavailableError as err:
            raise ProviderUnavailableError(f"libvirt: {err}") from err
        return _instance(machine)

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        try:
            found = await self._workloads.machines(tags)
        except UnavailableError as err:
            raise ProviderUnavailableError(f"libvirt: {err}") from err
        return [_instance(machine) for machine in found]

    async def destroy(self, provider_id: str) -> None:
        try:
            await self._workloads.delete(WorkloadId(provider_id))
        except RefusedError as err:
            raise ProviderRefusedError(f"libvirt: {err}") from err
        except UnavailableError as err:
            raise ProviderUnavailableError(f"libvirt: {err}") from err

    async def close(self) -> None:
        """There is nothing to release."""

    def _machine(self, request: MachineRequest) -> MachineWorkload:
        size = self._sizes.get(request.size)
        if size is None:
            raise ProviderRefusedError(f"invalid size '{request.size}': not a size of the pool")
        try:
            machine_id = workload_id(request.name)
        except InvalidError as err:
            raise ProviderRefusedError(f"libvirt: {err}") from err
        options = request.options
        resources = size.resources + Resources(0, SYSTEM_MEMORY_MB, SYSTEM_DISK_GB)
        disk = Disk(
            pool_name=options.get("storage_pool", ""),
            size_gb=resources.disk_gb,
            device="vda",
            boot=True,
        )
        spec = VMSpec(
            vcpus=max(1, -(-resources.cpu_millicores // 1000)),
            memory_mb=resources.memory_mb,
            disks=(disk,),
            networks=(Network(name=options.get("network") or DEFAULT_NETWORK, dhcp=True),),
            cloud_init=CloudInit(user_data=request.user_data),
            os_image=request.image,
        )
        labels = {"region": request.region} if request.region else {}
        return MachineWorkload(machine_id, spec, request.tags, resources, labels)


def _instance(machine: MachineWorkload) -> Instance:
    return Instance(
        provider_id=machine.id,
        name=machine.id,
        tags=machine.metadata,
        state=_STATES[machine.status],
        created_at=machine.created_at,
        address=machine.address,
    )
