"""Which workloads a service selects. A workload is a member by the first selector that matches it."""

from collections.abc import Iterator, Mapping

from persys.model.service import Selector, Service
from persys.model.spec import ContainerSpec
from persys.model.workload import Workload


def labels_of(workload: Workload) -> Mapping[str, str]:
    """Its metadata, and the labels of its container."""
    if isinstance(workload.spec, ContainerSpec) and workload.spec.labels:
        return {**workload.spec.labels, **workload.metadata}
    return workload.metadata


def selector_of(service: Service, workload: Workload) -> Selector | None:
    """None: the workload is not a member. A member of a job never is: it runs to completion."""
    if workload.runs_once:
        return None
    labels: Mapping[str, str] | None = None
    for selector in service.members:
        if selector.set_id:
            if workload.membership is not None and workload.membership.owner == selector.set_id:
                return selector
        else:
            labels = labels_of(workload) if labels is None else labels
            if all(labels.get(name) == value for name, value in selector.labels.items()):
                return selector
    return None


def index_keys(service: Service) -> Iterator[tuple[str, str]]:
    """One key per selector: each workload that it can match has that key, see `keys_of`."""
    for selector in service.members:
        if selector.set_id:
            yield "", selector.set_id
        else:
            yield min(selector.labels.items())


def keys_of(workload: Workload) -> Iterator[tuple[str, str]]:
    """The keys of the selectors that could match the workload."""
    if workload.membership is not None:
        yield "", workload.membership.owner
    yield from labels_of(workload).items()
