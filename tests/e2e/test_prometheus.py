"""A real Prometheus with the shipped configuration: it scrapes a real cluster and fires alerts.

The queries of the dashboards are sent as Grafana sends them.
"""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.process import Process, free_port
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

DEPLOY = Path(__file__).parents[2] / "deploy"
SHIPPED = DEPLOY / "prometheus"

Ask = Callable[[str], Any]


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "scheduler": {
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_NODE_LEASE": "3s",
            "SCHEDULER_NODE_UNAVAILABLE_GRACE": "1s",
        },
        "agent": {"PERSYS_METRICS_PORT": str(free_port())},
    }


@pytest.fixture(scope="module")
def ask(
    cluster: Cluster,
    cluster_settings: dict[str, dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ask]:
    targets = {
        "persys-scheduler": f"127.0.0.1:{cluster.metrics_port}",
        "persys-agent": f"127.0.0.1:{cluster_settings['agent']['PERSYS_METRICS_PORT']}",
    }
    with prometheus(tmp_path_factory.mktemp("prometheus"), targets) as created:
        eventually(lambda: values(created, "sum(up)") == {"2"}, "scheduler and agent are read")
        yield created


def promtool(*arguments: str) -> str:
    result = subprocess.run(
        ["promtool", *arguments], cwd=SHIPPED, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_prometheus_accepts_the_shipped_configuration() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_the_alert_rules_pass_their_unit_tests() -> None:
    promtool("test", "rules", "alerts_test.yml")


def test_every_alert_has_a_unit_test() -> None:
    tried = {
        case["alertname"]
        for trial in yaml.safe_load((SHIPPED / "alerts_test.yml").read_text("utf-8"))["tests"]
        for case in trial["alert_rule_test"]
        if case.get("exp_alerts")
    }

    assert tried == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("board", ["persys-scheduler", "persys-agent"])
def test_prometheus_answers_every_dashboard_query(
    ask: Ask, cluster: Cluster, sleeper: pb.WorkloadSpec, board: str
) -> None:
    cluster.run_all([board], sleeper)
    queries = queries_of(board)
    assert len(queries) > 30
    steady = [query for query in queries if not SHOWS_WHAT_IS_RARE.search(query.text)]

    eventually(
        lambda: all(results(ask, query.text) for query in steady),
        lambda: f"data for {[query.text for query in steady if not results(ask, query.text)]}",
    )
    for query in queries:
        for found in results(ask, query.text):
            assert query.labels <= found["metric"].keys(), f"{query} got {found['metric']}"


def test_every_alert_can_be_evaluated(ask: Ask) -> None:
    def looked_at() -> list[dict[str, Any]]:
        return [rule for group in ask("/api/v1/rules")["groups"] for rule in group["rules"]]

    eventually(lambda: all(rule["health"] != "unknown" for rule in looked_at()), "all are tried")
    assert {rule["name"]: rule.get("lastError") for rule in looked_at()} == dict.fromkeys(
        rule["alert"] for rule in rules()
    )


def test_a_lost_node_fires_an_alert(ask: Ask, cluster: Cluster) -> None:
    eventually(
        lambda: values(ask, 'persys_scheduler_nodes{status="Ready"}') == {"1"}, "the node is seen"
    )
    assert set(firing_alerts(ask)) == set()

    cluster.agent.kill()

    eventually(
        lambda: "PersysNodeLost" in firing_alerts(ask), lambda: f"an alert: {firing_alerts(ask)}"
    )
    assert firing_alerts(ask)["PersysNodeLost"]["node_id"] == cluster.node_id
    cluster.agent.start()


# Metrics without a time series before the first occurrence.
SHOWS_WHAT_IS_RARE = re.compile(
    r"out_of_service|unanswered|code!=|denied|certificate|failures|refusals|pulls|probes|workload_health|gc_items"
    r"|internal_errors|limited_fields|offloaded_workloads|nodepool|service_members"
)


class Query(NamedTuple):
    text: str
    labels: frozenset[str]  # labels in its legend


def queries_of(board: str) -> list[Query]:
    """As Grafana sends them for all instances."""
    panels = json.loads((DEPLOY / "grafana" / f"{board}.json").read_text("utf-8"))["panels"]
    return [
        Query(
            target["expr"].replace("$instance", ".*").replace("$__rate_interval", "30s"),
            frozenset(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))),
        )
        for panel in panels
        for target in panel.get("targets", ())
    ]


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, str]) -> Iterator[Ask]:
    """With the shipped rules and configuration, except addresses and shorter intervals."""
    port = free_port()
    settings = yaml.safe_load((SHIPPED / "prometheus.yml").read_text("utf-8"))
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in settings["scrape_configs"]:
        job["static_configs"][0]["targets"] = [targets[job["job_name"]]]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    fast_rules = yaml.safe_load((SHIPPED / "alerts.yml").read_text("utf-8"))
    for group in fast_rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s" if rule["alert"] == "PersysNodeLost" else "1h"
    (directory / "alerts.yml").write_text(yaml.safe_dump(fast_rules), "utf-8")

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return json.load(response)["data"]

    def ready() -> bool:
        try:
            ask("/api/v1/status/runtimeinfo")
        except OSError:
            return False
        return True

    engine = shutil.which("prometheus")
    assert engine is not None
    process = Process(
        [
            engine,
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        {},
        log=directory / "prometheus.log",
        ready=ready,
    )
    try:
        process.start()
        yield ask
    finally:
        process.close()


def values(ask: Ask, query: str) -> set[str]:
    return {found["value"][1] for found in results(ask, query)}


def results(ask: Ask, query: str) -> list[dict[str, Any]]:
    """Raises HTTPError for an invalid query."""
    found: list[dict[str, Any]] = ask(f"/api/v1/query?query={urllib.parse.quote(query)}")["result"]
    return found


def firing_alerts(ask: Ask) -> dict[str, dict[str, str]]:
    """The labels of firing alerts, by name."""
    return {
        alert["labels"]["alertname"]: alert["labels"]
        for alert in ask("/api/v1/alerts")["alerts"]
        if alert["state"] == "firing"
    }


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((SHIPPED / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]
