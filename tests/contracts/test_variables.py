"""Variables and defaults that existing deployments rely on. Changing one breaks their scripts and units."""

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from persys.agent.settings import AgentSettings
from persys.infra.settings import load
from persys.infra.vault.login import AuthMethod
from persys.scheduler.settings import SchedulerSettings

SETTINGS: dict[str, type[Any]] = {"scheduler": SchedulerSettings, "agent": AgentSettings}
SCHEDULER_CERTS = Path("/etc/persys/certs/persys-scheduler")
AGENT_CERTS = Path("/etc/persys/certs")
# The default, and another value with the text that sets it.
VARIABLES: dict[str, dict[str, tuple[object, str, object]]] = {
    "scheduler": {
        "ETCD_ENDPOINTS": (("localhost:2379",), "a:1,b:2", ("a:1", "b:2")),
        "DOMAIN": ("persys.local", "example.org", "example.org"),
        "GRPC_PORT": (8085, "9085", 9085),
        "METRICS_PORT": (8084, "9084", 9084),
        "SCHEDULER_RECONCILE_INTERVAL": (timedelta(seconds=5), "7s", timedelta(seconds=7)),
        "SCHEDULER_DRIFT_DETECT_INTERVAL": (timedelta(seconds=30), "1m", timedelta(minutes=1)),
        "SCHEDULER_NODE_UNAVAILABLE_GRACE": (timedelta(seconds=60), "90s", timedelta(seconds=90)),
        "SCHEDULER_MISSING_GRACE_PERIOD": (timedelta(seconds=10), "20s", timedelta(seconds=20)),
        "SCHEDULER_AGENT_STATUS_POLL_INTERVAL": (timedelta(seconds=1), "2s", timedelta(seconds=2)),
        "SCHEDULER_AGENT_APPLY_TIMEOUT": (timedelta(seconds=45), "2m", timedelta(minutes=2)),
        "SCHEDULER_AGENT_VM_APPLY_TIMEOUT": (timedelta(seconds=240), "9m", timedelta(minutes=9)),
        "SCHEDULER_AGENT_DELETE_TIMEOUT": (timedelta(seconds=60), "2m", timedelta(minutes=2)),
        "AGENTS_DISCOVERY_DOMAIN": ("agents.persys.cloud", "a.example.org", "a.example.org"),
        "SCHEDULER_SHARD_KEY": ("default", "east", "east"),
        "SCHEDULER_ADVERTISE_IP": ("", "10.0.0.9", "10.0.0.9"),
        "SCHEDULER_ADVERTISE_PORT": (0, "443", 443),
        "OTEL_EXPORTER_OTLP_ENDPOINT": ("", "collector:4317", "collector:4317"),
        "JAEGER_ENDPOINT": ("", "jaeger:4317", "jaeger:4317"),
        "OTEL_EXPORTER_OTLP_INSECURE": (False, "true", True),
        "PERSYS_TLS_CA": (SCHEDULER_CERTS / "ca.pem", "/ca.pem", Path("/ca.pem")),
        "PERSYS_TLS_CERT": (SCHEDULER_CERTS / "persys_scheduler.crt", "/c.crt", Path("/c.crt")),
        "PERSYS_TLS_KEY": (SCHEDULER_CERTS / "persys_scheduler-key.key", "/k.key", Path("/k.key")),
        "PERSYS_VAULT_ENABLED": (False, "true", True),
        "PERSYS_VAULT_ADDR": ("http://127.0.0.1:8200", "http://v:1", "http://v:1"),
        "PERSYS_VAULT_AUTH_METHOD": (AuthMethod.TOKEN, "approle", AuthMethod.APPROLE),
        "PERSYS_VAULT_TOKEN": ("", "t", "t"),
        "PERSYS_VAULT_APPROLE_ROLE_ID": ("", "r", "r"),
        "PERSYS_VAULT_APPROLE_SECRET_ID": ("", "s", "s"),
        "PERSYS_VAULT_PKI_MOUNT": ("pki", "pki-2", "pki-2"),
        "PERSYS_VAULT_PKI_ROLE": ("persys-scheduler", "other", "other"),
        "PERSYS_VAULT_CERT_TTL": (timedelta(hours=24), "12h", timedelta(hours=12)),
        "PERSYS_VAULT_RETRY_INTERVAL": (timedelta(minutes=1), "5s", timedelta(seconds=5)),
        "PERSYS_VAULT_SERVICE_NAME": ("persys-scheduler", "s1", "s1"),
        "PERSYS_VAULT_SERVICE_DOMAIN": ("", "example.org", "example.org"),
    },
    "agent": {
        "PERSYS_GRPC_ADDR": ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
        "PERSYS_GRPC_PORT": (50051, "50052", 50052),
        "PERSYS_TLS_ENABLED": (True, "false", False),
        "PERSYS_TLS_CERT": (AGENT_CERTS / "agent.crt", "/a.crt", Path("/a.crt")),
        "PERSYS_TLS_KEY": (AGENT_CERTS / "agent.key", "/a.key", Path("/a.key")),
        "PERSYS_TLS_CA": (AGENT_CERTS / "ca.crt", "/ca.crt", Path("/ca.crt")),
        "PERSYS_STATE_PATH": (Path("/var/lib/persys/state.db"), "/s.db", Path("/s.db")),
        "PERSYS_DOCKER_ENABLED": (True, "false", False),
        "DOCKER_HOST": ("unix:///var/run/docker.sock", "tcp://d:1", "tcp://d:1"),
        "PERSYS_COMPOSE_ENABLED": (True, "false", False),
        "PERSYS_VM_ENABLED": (True, "false", False),
        "PERSYS_LIBVIRT_URI": ("qemu:///system", "qemu:///session", "qemu:///session"),
        "PERSYS_RECONCILE_ENABLED": (True, "false", False),
        "PERSYS_RECONCILE_INTERVAL": (timedelta(seconds=30), "5s", timedelta(seconds=5)),
        "PERSYS_LOG_LEVEL": ("info", "debug", "debug"),
        "PERSYS_ADMISSION_CPU_PERCENT": (80, "90", 90),
        "PERSYS_ADMISSION_MEMORY_PERCENT": (80, "90", 90),
        "PERSYS_ADMISSION_DISK_PERCENT": (80, "90", 90),
    },
}
CASES = [
    pytest.param(process, name, *values, id=f"{process}-{name}")
    for process, table in VARIABLES.items()
    for name, values in table.items()
]


def value_of(process: str, variable: str, environment: Mapping[str, str]) -> object:
    cls = SETTINGS[process]
    (field,) = (one for one in dataclasses.fields(cls) if variable in one.metadata["env"])
    return getattr(load(cls, [], environment, program=process).settings, field.name)


@pytest.mark.parametrize(("process", "variable", "default", "text", "value"), CASES)
def test_a_variable_has_its_default_and_is_read(
    process: str, variable: str, default: object, text: str, value: object
) -> None:
    assert value_of(process, variable, {}) == default
    assert value_of(process, variable, {variable: text}) == value


@pytest.mark.parametrize("process", SETTINGS)
def test_the_jaeger_endpoint_is_used_only_without_an_otlp_endpoint(process: str) -> None:
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": "otlp:1", "JAEGER_ENDPOINT": "jaeger:1"}

    assert value_of(process, "JAEGER_ENDPOINT", both) == "otlp:1"


@pytest.mark.parametrize("process", SETTINGS)
def test_tls_is_on_unless_the_flag_turns_it_off(process: str) -> None:
    for argv, insecure in ((), False), (("-insecure",), True):
        assert load(SETTINGS[process], argv, {}, program=process).settings.insecure is insecure
