"""The lifecycle steps of a workload in any pairing, and kill -9 of one side during a step."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

from e2e.process import Process
from e2e.waiting import eventually
from third_party.user import KINDS, User

SIDES = ("scheduler", "agent")
DEADLINE_SECONDS = 120


class Pairing(Protocol):
    user: User

    def side(self, name: str) -> Process:
        """The process of the scheduler or the agent."""

    def spec(self, workload_id: str, kind: str, *, version: int = 1) -> Any: ...

    def copy(self, workload_id: str) -> dict[str, str]:
        """State and revision of the agent's copy; empty if there is none."""

    def orders(self, workload_ids: Iterable[str]) -> object:
        """Differs as soon as the agent has received another order."""

    def fail_applies(self, workload_ids: Iterable[str]) -> None:
        """From now on only these workloads fail to start."""

    def check_cause(self, view: Any) -> None:
        """The view of a workload that failed to start names the cause."""


class Step(ABC):
    """One step for a workload of each kind: precondition, request of the user, expected result."""

    def __init__(self, pairing: Pairing, name: str) -> None:
        self.pairing = pairing
        self.names = {kind: f"{name}-{kind}" for kind in KINDS}

    def prepare(self) -> None:
        """The workloads run."""
        for kind, name in self.names.items():
            self.pairing.user.apply(name, self.pairing.spec(name, kind))
        self.expect("Running")

    @abstractmethod
    def request(self) -> None:
        """The request of the user."""

    def verify(self) -> None:
        self.expect("Running")

    def expect(self, status: str) -> None:
        for name in self.names.values():
            self.pairing.user.until(name, status, within=DEADLINE_SECONDS)
            copy = self.pairing.copy(name)
            assert copy.get("state", "") == (status if status != "Failed" else ""), name

    def fail_applies(self, *, fail: bool) -> None:
        self.pairing.fail_applies(self.names.values() if fail else ())


class Apply(Step):
    def prepare(self) -> None:
        """No workloads exist."""

    def request(self) -> None:
        for kind, name in self.names.items():
            self.pairing.user.apply(name, self.pairing.spec(name, kind))


class Update(Step):
    def request(self) -> None:
        for kind, name in self.names.items():
            self.pairing.user.apply(name, self.pairing.spec(name, kind, version=2))

    def verify(self) -> None:
        for name in self.names.values():
            revision = self.pairing.user.until(name, "Running", within=DEADLINE_SECONDS).revision_id
            copy = self.pairing.copy(name)
            assert copy["state"] == "Running"
            assert copy.get("revision", revision) == revision  # libvirt reports none


class Stop(Step):
    def request(self) -> None:
        for name in self.names.values():
            self.pairing.user.want(name, "Stopped")

    def verify(self) -> None:
        self.expect("Stopped")


class Start(Stop):
    def prepare(self) -> None:
        super().prepare()
        super().request()
        self.expect("Stopped")

    def request(self) -> None:
        for name in self.names.values():
            self.pairing.user.want(name, "Running")

    def verify(self) -> None:
        self.expect("Running")


class Failure(Apply):
    def prepare(self) -> None:
        self.fail_applies(fail=True)

    def verify(self) -> None:
        self.expect("Failed")
        for name in self.names.values():
            # A scheduler may be retrying it meanwhile, and show it as Pending.
            failed = self.pairing.user.until(name, "Failed", within=DEADLINE_SECONDS)
            self.pairing.check_cause(failed)
        self.fail_applies(fail=False)


class Retry(Failure):
    def prepare(self) -> None:
        super().prepare()
        super().request()
        super().verify()

    def request(self) -> None:
        for name in self.names.values():
            self.pairing.user.retry(name)

    def verify(self) -> None:
        self.expect("Running")


class Delete(Step):
    def request(self) -> None:
        for name in self.names.values():
            self.pairing.user.delete(name)

    def verify(self) -> None:
        for name in self.names.values():
            self.pairing.user.until_gone(name, within=DEADLINE_SECONDS)
            assert self.pairing.copy(name) == {}


STEPS = {
    step.__name__.lower(): step for step in (Apply, Update, Stop, Start, Failure, Retry, Delete)
}


def after_a_kill(pairing: Pairing, name: str, workload_id: str, side: str) -> Step:
    """Kill one side during the step, start it again, and check that the step completes."""
    step = STEPS[name](pairing, workload_id)
    step.prepare()
    before = pairing.orders(step.names.values())
    step.request()
    if side == "agent":
        eventually(lambda: pairing.orders(step.names.values()) != before, "an order is taken")
    pairing.side(side).kill()
    pairing.side(side).start()
    step.verify()
    return step
