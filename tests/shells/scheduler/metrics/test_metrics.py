"""What /metrics exports, and that the dashboard and the alerts use nothing else."""

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import aiohttp
import grpc
import pytest
import yaml
from prometheus_client import generate_latest

from persys.agent.metrics import Metrics as AgentMetrics
from persys.agent.metrics import export_workloads
from persys.gateway.metrics import Metrics as GatewayMetrics
from persys.infra.tls.metrics import register_certificate_metrics
from persys.scheduler.metrics.counters import SECOND_NAMES, Metrics
from shells.scheduler.harness import Cluster, eventually

DEPLOY = Path(__file__).parents[4] / "deploy"
SHORT = timedelta(seconds=1)
NAME = re.compile(r"\b(?:persys|process)_[a-z_]+\b")

DEADLINE_SECONDS = 30.0


async def page(cluster: Cluster) -> str:
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


async def metrics(cluster: Cluster) -> dict[str, float]:
    """Every sample by its name and labels, as written."""
    text = await page(cluster)
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("persys_scheduler_"): float(value) for name, _, value in lines}


async def until(cluster: Cluster, name: str, wanted: float) -> None:
    found: dict[str, float] = {}

    async def holds_now() -> bool:
        nonlocal found
        found = await metrics(cluster)
        return found.get(name) == wanted

    await eventually(holds_now, lambda: f"{name} to be {wanted}; it is {found.get(name)}")


async def test_a_refused_call_is_counted_and_timed_by_its_code(cluster: Cluster) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await cluster.control.workload("nobody")

    labels = '{code="NOT_FOUND",method="GetWorkload"}'
    found: dict[str, float] = {}
    async with asyncio.timeout(DEADLINE_SECONDS):  # counted after the client has the response
        while f"grpc_requests_total{labels}" not in found:
            found = await metrics(cluster)
    assert found[f"grpc_requests_total{labels}"] == 1
    assert found[f"grpc_request_seconds_count{labels}"] == 1


async def test_a_method_is_shown_before_its_first_call(cluster: Cluster) -> None:
    assert (await metrics(cluster))['grpc_requests_total{code="OK",method="DeleteWorkload"}'] == 0


async def test_calls_to_agents_are_counted_and_timed(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    found = await metrics(cluster)
    labels = '{code="OK",method="ApplyWorkload"}'
    assert found[f"agent_requests_total{labels}"] == 1
    assert found[f"agent_request_seconds_count{labels}"] == 1


async def test_unanswered_calls_of_a_node_are_exported_until_it_replies(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await node.agent.stop()
    await cluster.control.apply("web")

    async def is_named() -> bool:
        return (await metrics(cluster)).get('node_unanswered_calls{node_id="n1"}', 0) >= 1

    await eventually(is_named, lambda: "the node to be named")
    await node.agent.start()
    await cluster.control.until("web", "Running")
    assert 'node_unanswered_calls{node_id="n1"}' not in await metrics(cluster)


async def test_decisions_commits_and_events_are_counted(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    found = await metrics(cluster)
    assert found['reconciliations_total{result="written"}'] >= 2
    assert found["reconciliation_seconds_count"] >= 2
    assert found['commits_total{outcome="stored"}'] >= 3
    assert found["commit_seconds_count"] == found["commit_changes_count"] >= 3
    assert found["commit_changes_sum"] == found['commits_total{outcome="stored"}']
    assert found['events_total{kind="WorkloadPlaced"}'] == 1
    assert found["store_records"] >= 4


async def test_a_store_that_fails_shows_in_commits_and_mode(cluster: Cluster) -> None:
    await cluster.join()
    assert (await metrics(cluster))['mode{mode="normal"}'] == 1

    cluster.store.down = True
    await cluster.control.apply("web")

    await until(cluster, 'mode{mode="degraded"}', 1)
    found = await metrics(cluster)
    assert found['mode{mode="normal"}'] == 0
    assert found['commits_total{outcome="failed"}'] >= 1


async def test_a_failure_shows_its_reason_and_the_retry(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("NETWORK_ERROR", "no route")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")

    await until(cluster, 'workloads_failed{reason="NETWORK_ERROR"}', 1)
    found = await metrics(cluster)
    assert found["retries_total"] >= 1
    assert found['workloads_retrying{plan="planned"}'] == 1


async def test_the_longest_wait_for_capacity_is_exported(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    cluster.clock.ahead = cluster.settings.node_lease * 100

    async def waits() -> bool:
        return (await metrics(cluster))["pending_age_seconds"] > 700

    await eventually(waits, lambda: "the wait to be told")
    assert (await metrics(cluster))['queue_depth{queue="waiting_for_room"}'] == 1


@pytest.mark.parametrize(
    "cluster", [{"node_lease": SHORT, "node_unavailable_grace": SHORT}], indirect=True
)
async def test_a_node_without_heartbeats_is_exported_as_lost(cluster: Cluster) -> None:
    node = await cluster.join()
    assert (await metrics(cluster))['node_heartbeat_age_seconds{node_id="n1"}'] < 10
    assert (await metrics(cluster))['nodes_phase{phase="alive"}'] == 1

    await node.stop_heartbeats()

    lost = 'node_out_of_service{node_id="n1",phase="lost",status="NotReady"}'
    await until(cluster, lost, 1)
    assert (await metrics(cluster))['nodes_phase{phase="lost"}'] == 1


async def test_process_metrics_are_exported(cluster: Cluster) -> None:
    assert (await metrics(cluster))["process_resident_memory_bytes"] > 1_000_000


async def test_the_dashboard_and_the_alerts_use_only_existing_metrics(
    cluster: Cluster,
) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    names = names_in(await page(cluster))
    agent = AgentMetrics()
    export_workloads(agent.registry, actual=dict, health=dict, usage=dict)
    for process, one in (
        ("scheduler", Metrics()),
        ("agent", agent),
        ("gateway", GatewayMetrics({}, None)),
    ):
        register_certificate_metrics(
            one.registry, process, ExpiredCertificate()
        )  # which only those with TLS have
        names |= names_in(generate_latest(one.registry).decode())

    requested = {name for expression in expressions() for name in NAME.findall(expression)}

    assert len(requested) > 30
    assert requested - names == set()


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("grpc_server_requests_total", '{code="OK",method="ApplyWorkload"}'),
        ("grpc_server_request_duration_seconds_count", '{code="OK",method="ApplyWorkload"}'),
        ("agent_rpc_requests_total", '{code="OK",method="ApplyWorkload"}'),
        ("agent_rpc_duration_seconds_count", '{code="OK",method="ApplyWorkload"}'),
        ("nodes_status", '{status="Ready"}'),
        ("workloads_status", '{status="Running"}'),
        ("reconciliation_results_total", '{result="written"}'),
    ],
)
async def test_a_metric_has_the_name_that_existing_monitoring_reads(
    cluster: Cluster, name: str, labels: str
) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    cluster.clock.ahead += SHORT  # workloads are counted once a second

    assert (await metrics(cluster))[f"{name}{labels}"] >= 1


async def test_both_names_of_a_metric_have_the_same_samples(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    found = await metrics(cluster)

    for first, second in SECOND_NAMES.items():
        samples = re.compile(rf"{first}(_total|_bucket|_count|_sum|_created)?({{|$)")
        firsts = {name: value for name, value in found.items() if samples.match(name)}
        assert firsts
        assert firsts == {name: found[name.replace(first, second, 1)] for name in firsts}


async def test_every_metric_is_on_the_dashboard_and_in_the_table(cluster: Cluster) -> None:
    families = {name for name in await families_of(cluster) if name.startswith("persys_")}
    shown = " ".join(expressions())
    table = (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text("utf-8")
    shown_under_the_first = {
        f"persys_scheduler_{name}{ending}"
        for name in SECOND_NAMES.values()
        for ending in ("", "_total")
    }

    assert {name for name in families - shown_under_the_first if name not in shown} == set()
    assert set(re.findall(r"\| `(persys_(?:scheduler|internal|offload)\w+)` \|", table)) == families


class ExpiredCertificate:
    """An expired certificate."""

    def seconds_left(self) -> float:
        return 0

    def lifetime_seconds(self) -> float:
        return 1

    def revocations_age(self) -> Callable[[], float]:
        return float


async def families_of(cluster: Cluster) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", await page(cluster), re.MULTILINE))


def names_in(text: str) -> set[str]:
    """Also of metrics without a sample at the moment."""
    names = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    for name, kind in families:
        names.add(name)
        if kind == "histogram":
            names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return names


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "persys-scheduler.json").read_text("utf-8"))
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    shown += [variable["definition"] for variable in board["templating"]["list"][1:]]
    return shown + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
