"""The metrics of the agent match its dashboard and the documentation."""

import json
import re
from pathlib import Path

from prometheus_client import generate_latest

import persys.infra.telemetry.side_server  # noqa: F401 - as in every process, for what it leaves out of metrics
from persys.agent.metrics import Metrics, export_workloads

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"\b(?:persys|process)_[a-z_]+\b")


def families() -> dict[str, str]:
    """Every family and its type."""
    metrics = Metrics()
    export_workloads(metrics.registry, actual=dict, health=dict, usage=dict)
    text = generate_latest(metrics.registry).decode()
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def expressions() -> list[str]:
    board = json.loads((ROOT / "deploy" / "grafana" / "persys-agent.json").read_text("utf-8"))
    shown = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return shown + [variable["definition"] for variable in board["templating"]["list"][1:]]


def test_the_dashboard_uses_only_existing_metrics() -> None:
    describe = set(families())
    describe |= {f"{name}_bucket" for name, kind in families().items() if kind == "histogram"}
    requested = {name for expression in expressions() for name in NAME.findall(expression)}

    assert len(requested) > 20
    assert requested - describe == set()


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(expressions())
    own = {name for name in families() if name.startswith("persys_")}

    assert {name for name in own if name not in shown} == set()


def test_every_metric_is_in_the_table_of_the_docs() -> None:
    table = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    own = {name for name in families() if name.startswith("persys_")}
    lines = [line for line in table.splitlines() if line.startswith("| `persys_agent_")]

    assert {name for line in lines for name in re.findall(r"`(persys_agent_\w+)`", line)} == own


def test_panels_do_not_overlap() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "persys-agent.json").read_text("utf-8"))
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in board["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, place
        taken |= cells
