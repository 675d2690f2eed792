"""A third-party gateway in front of our scheduler, or ours in front of a third-party scheduler.

The agents are third-party agents. The user is connected to the gateway.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from e2e.gateways import Gateway
from e2e.process import Process
from e2e.waiting import eventually
from persys.model.identity import Role
from root_ca import Root
from third_party.gateway_user import GatewayUser
from third_party.pairings import PULL_ERROR, OurScheduler, WithThirdPartyAgents
from third_party.programs import Agent, Program, files_of
from third_party.steps import STEPS, Pairing, Step
from third_party.user import User

# Longer than the time until the gateway is killed.
HELD_BACK_SECONDS = 60.0
# The gateway is killed before a request is answered, or after all of them.
MOMENTS = ("request", "progress")


class GatewayPairing(Pairing, Protocol):
    user: GatewayUser
    direct: User  # connected to the scheduler

    @property
    def gateway(self) -> Process: ...

    def delay_responses(self, seconds: float) -> None:
        """From now on changes are accepted, and answered only after this time."""


class TheirGateway(OurScheduler):
    """A third-party gateway in front of our scheduler."""

    user: GatewayUser

    def __init__(self, folder: Path, *, root: Root | None = None) -> None:
        super().__init__(folder, root=root)
        self.direct = self.user
        tls = files_of(root.write_named("persys-gateway")) if root else {}
        user = files_of(root.write_named("persysctl")) if root else {}
        self.gateway = Program("gateway", folder / "gateway", scheduler=self.address, tls=tls)
        self.user = GatewayUser(self.gateway.address, user)

    def start(self) -> None:
        self.gateway.start()
        super().start()

    def delay_responses(self, seconds: float) -> None:
        self.gateway.set_behaviour(answer_seconds=seconds)

    def close(self) -> None:
        self.gateway.close()
        self.direct.close()
        super().close()

    def logs(self) -> dict[str, str]:
        return {"gateway": self.gateway.log, **super().logs()}


class OurGateway(WithThirdPartyAgents):
    """Our gateway in front of a third-party scheduler."""

    def __init__(self, folder: Path, *, root: Root | None = None) -> None:
        names = ("persys-scheduler", "compute-agent", "persysctl")
        tls = {name: files_of(root.write_named(name)) if root else {} for name in names}
        self.scheduler = Program("scheduler", folder / "scheduler", tls=tls["persys-scheduler"])
        address = self.scheduler.address
        # With such a scheduler, deleted workloads that are reported for ever would never be removed.
        agent = Agent(
            folder / "agent",
            "n1",
            address,
            tls=tls["compute-agent"],
            behaviour={"keeps_deleted": False},
        )
        self.agents = [agent]
        settings: dict[str, str] | None = None
        user: dict[str, str] = {}
        if root is not None:
            files = root.write(Role.GATEWAY, "g1", hosts=("127.0.0.1",))
            settings = root.variables(files)
            user = files_of(root.write(Role.OPERATOR, "alice"))
        ours = Gateway(folder, {"main": address}, settings)
        self.gateway = ours.process
        self.user = GatewayUser(f"127.0.0.1:{ours.port}", user)
        self.direct = User(address, tls["persysctl"])

    def start(self) -> None:
        for process in (self.scheduler, self.agent, self.gateway):
            process.start()
        self.user.until_node(self.agent.node_id, "Ready")

    def side(self, name: str) -> Process:
        return {"scheduler": self.scheduler, "agent": self.agent, "gateway": self.gateway}[name]

    def check_cause(self, view: Any) -> None:
        assert PULL_ERROR in view.reason.message, view

    def delay_responses(self, seconds: float) -> None:
        self.scheduler.set_behaviour(answer_seconds=seconds)

    def close(self) -> None:
        self.direct.close()
        for process in (self.scheduler, self.agent, self.gateway):
            process.close()

    def logs(self) -> dict[str, str]:
        processes = {"scheduler": self.scheduler, "agent": self.agent, "gateway": self.gateway}
        return {name: process.log for name, process in processes.items()}


def after_a_gateway_kill(pairing: GatewayPairing, name: str, workload_id: str, moment: str) -> None:
    """Kill the gateway during the step, start it again, and check that the step completes.

    The user repeats a request that was not answered.
    """
    step = STEPS[name](pairing, workload_id)
    step.prepare()
    if moment == "request":
        _kill_before_the_answer(pairing, step)
    else:
        step.request()
        pairing.gateway.kill()
        pairing.gateway.start()
    step.verify()
    _compare(pairing, step.names.values())


def _kill_before_the_answer(pairing: GatewayPairing, step: Step) -> None:
    names, user = step.names.values(), pairing.user
    before, repeated = pairing.orders(names), user.repeated
    pairing.delay_responses(HELD_BACK_SECONDS)
    with ThreadPoolExecutor(max_workers=1) as pool:
        request = pool.submit(step.request)
        try:
            eventually(lambda: pairing.orders(names) != before, "an order is taken")
            assert not request.done()
            pairing.gateway.kill()
        finally:
            pairing.delay_responses(0)
        pairing.gateway.start()
        request.result()
    assert user.repeated > repeated


def _compare(pairing: GatewayPairing, names: Iterable[str]) -> None:
    """The gateway shows what the scheduler shows. A failed workload may be retried in between."""

    def statuses(user: User) -> list[str]:
        views = [user.workload(name) for name in names]
        return [view.status if view else "gone" for view in views]

    eventually(
        lambda: statuses(pairing.user) == statuses(pairing.direct),
        lambda: f"the same statuses: {statuses(pairing.user)}, {statuses(pairing.direct)}",
    )
