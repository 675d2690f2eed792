"""A real Prometheus with the shipped settings: it takes them, reads a real cluster, and raises the alarm."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import Cluster
from e2e.process import Process, free_port
from e2e.waiting import eventually

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"


def promtool(*arguments: str) -> str:
    ended = subprocess.run(
        ["promtool", *arguments], cwd=SHIPPED, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_prometheus_takes_the_shipped_settings() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_every_alert_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", "alerts_test.yml")


def test_no_alert_is_without_its_trial() -> None:
    tried = {
        case["alertname"]
        for trial in yaml.safe_load((SHIPPED / "alerts_test.yml").read_text("utf-8"))["tests"]
        for case in trial["alert_rule_test"]
        if case.get("exp_alerts")
    }

    assert tried == {rule["alert"] for rule in rules()}


def test_a_lost_node_raises_the_alarm(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = new_cluster(
        scheduler={
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_NODE_LEASE": "3s",
            "SCHEDULER_NODE_UNAVAILABLE_GRACE": "1s",
        }
    )
    cluster.start()
    with prometheus(tmp_path, f"127.0.0.1:{cluster.metrics_port}") as ask:
        eventually(lambda: values(ask, "up") == {"1"}, "the scheduler is read")
        eventually(
            lambda: values(ask, 'persys_scheduler_nodes{status="Ready"}') == {"1"},
            "the node is seen",
        )
        assert set(alarms(ask)) == set()

        cluster.agent.kill()

        eventually(lambda: "PersysNodeLost" in alarms(ask), lambda: f"an alarm: {alarms(ask)}")
        assert alarms(ask)["PersysNodeLost"]["node_id"] == cluster.node_id


Ask = Callable[[str], Any]


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Ask]:
    """With the shipped rules and settings, but for the address, and sooner."""
    port = free_port()
    settings = yaml.safe_load((SHIPPED / "prometheus.yml").read_text("utf-8"))
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["scrape_configs"] = settings["scrape_configs"][:1]
    settings["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    hasty = yaml.safe_load((SHIPPED / "alerts.yml").read_text("utf-8"))
    for group in hasty["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s" if rule["alert"] == "PersysNodeLost" else "1h"
    (directory / "alerts.yml").write_text(yaml.safe_dump(hasty), "utf-8")

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.load(answer)["data"]

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
    answer = ask(f"/api/v1/query?query={urllib.parse.quote(query)}")
    return {result["value"][1] for result in answer["result"]}


def alarms(ask: Ask) -> dict[str, dict[str, str]]:
    """The labels of those that fire, by name."""
    return {
        alert["labels"]["alertname"]: alert["labels"]
        for alert in ask("/api/v1/alerts")["alerts"]
        if alert["state"] == "firing"
    }


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((SHIPPED / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]
