"""Our scheduler with third-party agents, or a third-party scheduler with our agent, and a user."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import compose_binaries
from e2e.cluster import BIN
from e2e.containers import container_ids, docker
from e2e.process import Process, free_port, listens_on
from e2e.vms import TINY, domains, virsh
from persys.model.identity import Role
from root_ca import Root
from third_party.programs import Agent, Program, files_of, our_scheduler
from third_party.user import User, a_spec

PULL_ERROR = "failed to pull image: Get https://registry.example/v2/: connection refused"
# Nothing listens there: an image of this registry is available only if it is present locally.
NO_REGISTRY = "127.0.0.1:1"


class WithThirdPartyAgents:
    """What is known of the first of its third-party agents."""

    agents: list[Agent]

    @property
    def agent(self) -> Agent:
        return self.agents[0]

    def spec(self, workload_id: str, kind: str, *, version: int = 1) -> Any:
        return a_spec(kind, version=version)

    def copy(self, workload_id: str) -> dict[str, str]:
        return self.agent.copy(workload_id)

    def orders(self, workload_ids: Iterable[str]) -> object:
        tasks = ("apply_workload begun", "delete_workload begun")
        return sum(len(self.agent.events(task, name)) for name in workload_ids for task in tasks)

    def fail_applies(self, workload_ids: Iterable[str]) -> None:
        self.agent.set_behaviour(errors=dict.fromkeys(workload_ids, PULL_ERROR))


class OurScheduler(WithThirdPartyAgents):
    """Our scheduler with third-party agents."""

    def __init__(
        self,
        folder: Path,
        *,
        root: Root | None = None,
        settings: dict[str, str] | None = None,
        behaviour: dict[str, Any] | None = None,
    ) -> None:
        """`behaviour` is the initial behaviour of the first agent."""
        self.folder = folder
        self._behaviour = behaviour or {}
        self._root = root
        self._tls = {}
        user: dict[str, str] = {}
        if root is not None:
            # Names that all nodes, or all users, share.
            self._tls = files_of(root.write_named("compute-agent"))
            user = files_of(root.write_named("persysctl"))
        self.scheduler, self.address = our_scheduler(folder, root, settings)
        self.agents = []
        self.user = User(self.address, user)

    def start(self) -> None:
        """Returns when the first node is ready."""
        self.scheduler.start()
        self.add_agent(behaviour=self._behaviour)

    def add_agent(self, *, has_own_name: bool = False, **settings: Any) -> Agent:
        """`has_own_name`: the common name of its certificate is the node id."""
        node_id = f"field-{uuid4().hex[:8]}"
        tls = self._tls
        if has_own_name and self._root is not None:
            tls = files_of(self._root.write_named(f"persys-agent-{node_id}"))
        agent = Agent(self.folder / node_id, node_id, self.address, tls=tls, **settings)
        self.agents.append(agent)
        agent.start()
        self.user.until_node(node_id, "Ready")
        return agent

    def side(self, name: str) -> Process:
        return self.scheduler if name == "scheduler" else self.agent

    def check_cause(self, view: Any) -> None:
        assert view.failure_reason == "IMAGE_PULL_FAILED", view
        assert PULL_ERROR in view.reason.message

    def close(self) -> None:
        self.user.close()
        for process in (self.scheduler, *self.agents):
            process.close()

    def logs(self) -> dict[str, str]:
        return {"scheduler": self.scheduler.log, **{one.node_id: one.log for one in self.agents}}


class OurAgent:
    """A third-party scheduler with our agent, on real runtimes."""

    def __init__(
        self,
        folder: Path,
        vm_directory: tuple[Path, dict[str, str]],
        image: str,
        *,
        root: Root | None = None,
        behaviour: dict[str, Any] | None = None,
    ) -> None:
        """`vm_directory` is a directory for VMs and the agent settings for it."""
        self._vm_directory, settings = vm_directory
        self._image = image
        self._names: set[str] = set()
        tls: dict[str, str] = {}
        user: dict[str, str] = {}
        security: dict[str, str] = {}
        self.node_id = f"ours-{uuid4().hex[:8]}"
        if root is not None:
            tls = files_of(root.write_named("persys-scheduler"))
            user = files_of(root.write_named("persysctl"))
            files = root.write(Role.AGENT, self.node_id, hosts=("127.0.0.1",))
            security = root.variables(files)
        self.scheduler = Program(
            "scheduler", folder / "scheduler", tls=tls, behaviour=behaviour or {}
        )
        port = free_port()
        self.agent = Process(
            [str(BIN / "persys-agent"), *(["-insecure"] if root is None else [])],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(port),
                "PERSYS_METRICS_PORT": str(free_port()),
                "PERSYS_NODE_ID": self.node_id,
                "PERSYS_STATE_PATH": str(folder / "state.db"),
                "PERSYS_STORAGE_LOCAL_ROOT": str(folder / "volumes"),
                "PERSYS_SCHEDULER_ADDR": self.scheduler.address,
                "PERSYS_COMPOSE_ENABLED": "true",
                "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
                "PERSYS_STOP_GRACE": "1s",
                "PERSYS_VM_STOP_GRACE": "1s",
                **settings,
                **security,
            },
            log=folder / "agent.log",
            ready=lambda: listens_on(port),
        )
        self.user = User(self.scheduler.address, user)

    def start(self) -> None:
        """Returns when the node is ready for all workload types."""
        self.scheduler.start()
        self.agent.start()
        self.user.until_node(self.node_id, "Ready")

    def side(self, name: str) -> Process:
        return self.scheduler if name == "scheduler" else self.agent

    def spec(self, workload_id: str, kind: str, *, version: int = 1) -> Any:
        """With an image or a disk that only this workload uses."""
        if workload_id not in self._names:
            self._names.add(workload_id)
            self._provide(workload_id)
        return a_spec(
            kind, version=version, image=_image(workload_id), disk=self._disk(workload_id)
        )

    def copy(self, workload_id: str) -> dict[str, str]:
        for name in domains(self._vm_directory):
            if str(self._disk(workload_id)) in virsh("dumpxml", name, check=False):
                running = virsh("domstate", name, check=False) == "running"
                return {"state": "Running" if running else "Stopped"}
        # In one call: a container may be replaced between list and inspect.
        words = ["ps", "-a", "--format", '{{.State}} {{.Label "persys.revision_id"}}']
        for label in (f"persys.node_id={self.node_id}", f"persys.workload_id={workload_id}"):
            words += ["--filter", f"label={label}"]
        lines = docker(*words).splitlines()
        if not lines:
            return {}
        state, _, revision = lines[0].partition(" ")
        return {"state": "Running" if state == "running" else "Stopped", "revision": revision}

    def orders(self, workload_ids: Iterable[str]) -> object:
        kept = json.loads((self.scheduler.folder / "scheduler.json").read_text())["workloads"]
        return [kept.get(name, {}).get("sent") for name in workload_ids]

    def fail_applies(self, workload_ids: Iterable[str]) -> None:
        failing = set(workload_ids)
        self._names |= failing
        for name in self._names:
            self._withdraw(name) if name in failing else self._provide(name)

    def check_cause(self, view: Any) -> None:
        expected = {"IMAGE_PULL_FAILED", "IMAGE_NOT_FOUND", "STORAGE_ERROR", "INVALID_SPEC"}
        assert view.failure_reason in expected, view
        assert view.reason.message

    def close(self) -> None:
        self.user.close()
        for process in (self.scheduler, self.agent):
            process.close()
        for container_id in container_ids(self.node_id):
            docker("rm", "-f", "-v", container_id)
        for name in self._names:
            self._withdraw(name)

    def logs(self) -> dict[str, str]:
        return {"scheduler": self.scheduler.log, "agent": self.agent.log}

    def _provide(self, workload_id: str) -> None:
        docker("tag", self._image, _image(workload_id))
        if not self._disk(workload_id).exists():
            shutil.copy(TINY, self._disk(workload_id))
            self._disk(workload_id).chmod(0o666)

    def _withdraw(self, workload_id: str) -> None:
        if docker("images", "-q", _image(workload_id)):
            docker("rmi", "-f", _image(workload_id))
        self._disk(workload_id).unlink(missing_ok=True)

    def _disk(self, workload_id: str) -> Path:
        return self._vm_directory / f"{workload_id}.qcow2"


def _image(workload_id: str) -> str:
    return f"{NO_REGISTRY}/{workload_id}:latest"
