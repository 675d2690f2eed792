"""What a name is: a workload, a set or a job. Commands for workloads accept the names of sets too."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from persys.errors import NotFoundError, RefusedError
from persys.wire.gen.control.v1.control_pb2 import JobView, SetView, WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


def find_any(client: "SchedulerClient", name: str) -> WorkloadView | SetView | JobView:
    """Raises NotFoundError of the workload if the name is none of them."""
    try:
        return client.get_workload(name)
    except NotFoundError:
        found = find_set(client, name) or find_job(client, name)
        if found is None:
            raise
        return found


def find_set(client: "SchedulerClient", set_id: str) -> SetView | None:
    """None if there is no such set, or the scheduler does not know sets."""
    try:
        return client.get_set(set_id)
    except RefusedError:
        return None


def find_job(client: "SchedulerClient", job_id: str) -> JobView | None:
    try:
        return client.get_job(job_id)
    except RefusedError:
        return None


def get_set(client: "SchedulerClient", name: str) -> SetView:
    """Raises RefusedError that says what the name is, if it is not a set."""
    try:
        return client.get_set(name)
    except NotFoundError as err:
        raise _other_kind(client, name, err) from None


def get_job(client: "SchedulerClient", name: str) -> JobView:
    try:
        return client.get_job(name)
    except NotFoundError as err:
        raise _other_kind(client, name, err) from None


def _other_kind(client: "SchedulerClient", name: str, err: NotFoundError) -> RefusedError:
    try:
        found = find_any(client, name)
    except RefusedError:
        return err
    kinds = {WorkloadView: "workload", SetView: "set", JobView: "job"}
    return RefusedError(f"{err}; it is a {kinds[type(found)]}: see `persysctl get {name}`")


@contextmanager
def of_one_workload(client: "SchedulerClient", name: str) -> Iterator[None]:
    """For a command that takes no set and no job: an error says what to use instead."""
    try:
        yield
    except NotFoundError:
        view = find_set(client, name)
        if view is not None and view.members:
            member = view.members[0].workload_id
            raise RefusedError(f"{name} is a set: choose a member, for example {member}") from None
        check_not_a_job(client, name)
        raise


def check_not_a_job(client: "SchedulerClient", name: str) -> None:
    """Raises RefusedError with the commands for a job if it is one."""
    if find_job(client, name) is not None:
        text = (
            f"{name} is a job: use `persysctl job run`, `job suspend`, `job cancel` or `job logs`"
        )
        raise RefusedError(text) from None


def split_sets(
    client: "SchedulerClient", ids: Iterable[str]
) -> tuple[dict[str, SetView], list[str]]:
    """The sets among the ids, and the ids of workloads."""
    sets: dict[str, SetView] = {}
    others: list[str] = []
    for name in dict.fromkeys(ids):
        found = find_set(client, name)
        if found is None:
            others.append(name)
        else:
            sets[name] = found
    return sets, others
