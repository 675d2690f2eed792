"""A user who knows only the contract: submits workloads to any scheduler and waits for them."""

from pathlib import Path
from typing import Any

import grpc

from e2e.waiting import DEADLINE_SECONDS, eventually
from third_party.contract import control
from third_party.programs import machine_in_agents_form

CALL_SECONDS = 30
KINDS = ("container", "compose", "vm")
# For runtimes that do not use the spec.
ANY_DISK = Path("/var/tmp/any.qcow2")


def a_spec(kind: str, *, version: int = 1, image: str = "nginx", disk: Path = ANY_DISK) -> Any:
    """Another version is another revision."""
    spec = control.WorkloadSpec(type=kind)
    spec.resources.cpu_millicores, spec.resources.memory_mb = 50, 32
    if kind == "container":
        spec.container.image = image
        spec.container.command.extend(["sleep", "3600"])
        spec.container.env["VERSION"] = str(version)
    elif kind == "compose":
        text = f"services:\n  web:\n    image: {image}\n    command: [sleep, '3600']\n"
        text += f"    init: true\n    environment: {{VERSION: '{version}'}}\n"
        spec.compose.source_type = "inline"
        spec.compose.inline_yaml = text
    else:
        # Field 12 is replaced by the metadata, which can name a disk of the node.
        form = machine_in_agents_form(disk, memory_mb=160 + version)
        spec.metadata["persys.vm_spec_b64"] = form
        spec.vm.vcpus = 1
    return spec


class User:
    def __init__(self, address: str, tls: dict[str, str] | None = None) -> None:
        self._channel = _channel(address, tls)
        self._stub = control.stub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def apply(self, name: str, spec: Any) -> None:
        request = control.ApplyWorkloadRequest(workload_id=name, spec=spec)
        response = self._call("ApplyWorkload", request)
        assert response.success, response.error_message

    def want(self, name: str, desired: str) -> None:
        request = control.ApplyWorkloadRequest(workload_id=name, desired_state=desired)
        response = self._call("ApplyWorkload", request)
        assert response.success, response.error_message

    def delete(self, name: str) -> None:
        response = self._call("DeleteWorkload", control.DeleteWorkloadRequest(workload_id=name))
        assert response.success, response.error_message

    def retry(self, name: str) -> None:
        response = self._call("RetryWorkload", control.RetryWorkloadRequest(workload_id=name))
        assert response.accepted

    def workload(self, name: str) -> Any:
        """None: the workload does not exist."""
        try:
            return self._call("GetWorkload", control.GetWorkloadRequest(workload_id=name)).workload
        except grpc.RpcError as err:
            if "not found" in (err.details() or ""):
                return None
            raise

    def node_status(self, node_id: str) -> str:
        nodes = self._call("ListNodes", control.ListNodesRequest()).nodes
        return str({node.node_id: node.status for node in nodes}.get(node_id, ""))

    def node(self, node_id: str) -> Any:
        return self._call("GetNode", control.GetNodeRequest(node_id=node_id)).node

    # Waiting.

    def until(self, name: str, status: str, *, within: float = DEADLINE_SECONDS) -> Any:
        found: list[Any] = []

        def has_status() -> bool:
            found[:] = [self.workload(name)]
            return found[0] is not None and found[0].status == status

        eventually(has_status, lambda: f"{name} is {status}: {found}", within=within)
        return found[0]

    def until_gone(self, name: str, *, within: float = DEADLINE_SECONDS) -> None:
        eventually(
            lambda: self.workload(name) is None,
            lambda: f"{name} is gone: {self.workload(name)}",
            within=within,
        )

    def until_node(self, node_id: str, status: str, *, within: float = DEADLINE_SECONDS) -> None:
        eventually(
            lambda: self.node_status(node_id) == status,
            lambda: f"{node_id} is {status}: {self.node_status(node_id)}",
            within=within,
        )

    def _call(self, method: str, request: Any) -> Any:
        """Waits for a scheduler that is starting."""
        call = getattr(self._stub, method)
        return call(request, timeout=CALL_SECONDS, wait_for_ready=True)


def _channel(address: str, tls: dict[str, str] | None) -> grpc.Channel:
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]
    if not tls:
        return grpc.insecure_channel(address, options=options)
    ca, cert, key = (Path(tls[name]).read_bytes() for name in ("ca", "cert", "key"))
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.secure_channel(address, credentials, options=options)
