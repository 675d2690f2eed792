"""The typed Python SDK: clients for a cluster (through a scheduler or a gateway), an agent and persys-ca.

    scheduler.py    SchedulerClient: all calls to a cluster; tokens, secrets, quarantined records
    calls.py        the base of the call groups: the stub and the default deadline
    workloads.py    workloads: apply, logs, exec, volumes, images, suggestions
    sets_jobs.py    sets with their rollouts, jobs with their runs
    cluster.py      nodes, drift, orphans, events, explain and plan, mode and recovery
    agent.py        AgentClient: inspects one agent
    http.py         the HTTP client for gateways and persys-ca
    grpc/           gRPC channels and interceptors
    rest/           the scheduler API over the REST API of a gateway
    ca/             AuthorityClient: persys-ca, and certificates that are renewed

Names are imported on first use, so a program loads only the client that it uses. Used by `persysctl` and by
programs; the processes use `ca/` for their certificates. docs/reference/sdk.md starts with an example.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from persys.client.agent import AgentClient
    from persys.client.ca.client import AuthorityClient
    from persys.client.grpc.channel import RequestRefusedError, Trust
    from persys.client.rest.connection import Gateway
    from persys.client.scheduler import SchedulerClient
    from persys.infra.atomic_files import CertificateFiles

__all__ = [
    "AgentClient",
    "AuthorityClient",
    "CertificateFiles",
    "Gateway",
    "RequestRefusedError",
    "SchedulerClient",
    "Trust",
]

_MODULES = {
    "AgentClient": "persys.client.agent",
    "AuthorityClient": "persys.client.ca.client",
    "CertificateFiles": "persys.infra.atomic_files",
    "Gateway": "persys.client.rest.connection",
    "RequestRefusedError": "persys.client.grpc.channel",
    "SchedulerClient": "persys.client.scheduler",
    "Trust": "persys.client.grpc.channel",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
