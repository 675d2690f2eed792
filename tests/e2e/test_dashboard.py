"""The dashboard in a real Chromium, with a real gateway, scheduler, agents and Docker.

One browser and one cluster for all tests: each uses its own workloads and changes nothing else.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from e2e.browser import DESKTOP, PHONE, Browser, a_browser
from e2e.cluster import Cluster, a_container
from e2e.gateways import Gateway
from e2e.process import free_port
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

ZONE = "east"
MARKUP = "<img src=x onerror=document.title=1><b>bold</b>"
FACTS = """return [...document.querySelectorAll(".facts div")]
  .map((fact) => [fact.children[0].textContent, fact.children[1].textContent])"""
PAGES = ("", "workloads", "sets", "jobs", "nodes", "events", "logs", "apply", "access")


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "scheduler": {"SCHEDULER_HEARTBEAT_INTERVAL": "1s"},
        "agent": {"PERSYS_NODE_LABELS": f"note={MARKUP}"},
    }


@pytest.fixture(scope="module")
def other_node(cluster: Cluster) -> str:
    return cluster.add_node(PERSYS_NODE_LABELS=f"zone={ZONE}")


@pytest.fixture(scope="module")
def log_writer(cluster: Cluster, demo_image: str) -> str:
    """Started with the first test, so that its usage is available later."""
    line = f'while true; do echo "line {MARKUP}"; sleep 0.2; done'
    cluster.apply(
        "log-writer", a_container(demo_image, "sh", "-c", line, metadata={"team": MARKUP})
    )
    return "log-writer"


@pytest.fixture(scope="module")
def window(
    cluster: Cluster, other_node: str, log_writer: str, module_directory: Path
) -> Iterator[Browser]:
    gateway = Gateway(module_directory, {"main": cluster.target})
    try:
        gateway.process.start()
        with a_browser() as created:
            created.address = gateway.address
            yield created
    finally:
        gateway.process.close()


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    with window.used() as created:
        yield created


@pytest.fixture
def name(names: Callable[[int], list[str]]) -> str:
    return names(1)[0]


@pytest.fixture
def running(cluster: Cluster, sleeper: pb.WorkloadSpec, name: str) -> str:
    cluster.run_all([name], sleeper)
    return name


# Pages.


def test_the_overview_shows_the_cluster_and_updates(
    browser: Browser, cluster: Cluster, sleeper: pb.WorkloadSpec, name: str
) -> None:
    browser.open()
    browser.until_text("2 of 2 ready")
    browser.until_text("normal")
    browser.until_text("Tolerates the loss of any one node")
    for resource in ("CPU", "Memory", "Disk"):
        assert resource in browser.text(".gauges")
    browser.until_text("% used", ".gauges")
    browser.until_text("Live", "#freshness")

    cluster.apply(name, sleeper)

    browser.until_text(f"workload running {name}", ".timeline")


def test_the_overview_names_a_node_whose_loss_leaves_workloads_unplaced(
    browser: Browser, cluster: Cluster, other_node: str, demo_image: str, name: str
) -> None:
    rules = pb.PlacementRules(constraints=[f"zone = {ZONE}"])
    cluster.run_all([name], a_container(demo_image, "sleep", "3600", placement=rules))

    browser.open()

    browser.until_text(f"without {other_node}, 1 workload would be unplaceable")
    cluster.client.delete(name)
    cluster.wait_until_gone([name])


def test_the_node_pages_show_list_and_details(
    browser: Browser, cluster: Cluster, other_node: str
) -> None:
    browser.open("nodes")
    browser.until_text(other_node)
    assert browser.script("return document.querySelectorAll('.rows tbody th').length") == 2

    cluster.client.taint(other_node, ["dedicated=gpu"])
    browser.open(f"nodes/{other_node}")

    browser.until_text(f"zone={ZONE}")
    browser.until_text("dedicated=gpu")
    browser.until_text("node tainted", ".timeline")
    cluster.client.taint(other_node, [])


def test_workloads_are_filtered_by_status_node_type_and_text(
    browser: Browser, cluster: Cluster, running: str, demo_image: str
) -> None:
    waiting = f"{running}-waits"
    cluster.apply(waiting, a_container(demo_image, "true", cpu=900_000))
    node = cluster.client.get_workload(running).assigned_node_id
    browser.open("workloads")

    def shows(*wanted: str) -> None:
        def holds_now() -> bool:
            rows = browser.find_all(".rows tbody th")
            return [row.text for row in rows if row.text.startswith(running)] == list(wanted)

        browser.until(holds_now, f"only {wanted} in the list")

    shows(running, waiting)
    browser.fill("input[type=search]", running)
    browser.until_text("2 of ", "#found")
    browser.choose("select[name=status]", "Pending")
    shows(waiting)
    browser.until_text("short of cpu", ".rows")
    browser.choose("select[name=status]", "")
    browser.choose("select[name=node]", node)
    shows(running)
    browser.choose("select[name=node]", "")
    browser.choose("select[name=type]", "vm")
    shows()

    # The filters are in the address, so a reload keeps them.
    assert "type=vm" in browser.driver.current_url
    browser.driver.refresh()
    browser.until_text("0 of ", "#found")
    cluster.client.delete(waiting)


def test_a_pending_workload_shows_the_reason_and_a_remedy(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    cluster.apply(name, a_container(demo_image, "true", cpu=900_000))
    browser.open(f"workloads/{name}")

    browser.until_text("Unplaceable", ".callout")
    browser.until_text("Changes that would place it")
    browser.until_text("0 of 2 can run it")
    cluster.client.delete(name)


def test_a_workload_with_a_failing_health_check_is_shown_as_unhealthy(
    browser: Browser, cluster: Cluster, unique_id: str, demo_image: str
) -> None:
    spec = a_container(demo_image, "sleep", "600")
    spec.container.health_check.CopyFrom(
        pb.HealthCheck(type="exec", command=["false"], interval_seconds=1, retries=1)
    )
    cluster.client.apply(pb.ApplyWorkloadRequest(workload_id=unique_id, spec=spec))

    browser.open(f"workloads/{unique_id}")

    browser.until_text("Running (unhealthy)", ".status.bad")
    cluster.client.delete(unique_id)


def test_events_can_be_searched(browser: Browser, log_writer: str) -> None:
    browser.open("events")
    browser.until_text(log_writer, ".timeline")

    browser.fill("input[type=search]", f"{log_writer} placed")

    browser.until(lambda: len(browser.find_all(".timeline li")) == 1, "one event")


# Actions.


def test_a_workload_is_stopped_started_redeployed_and_deleted(
    browser: Browser, cluster: Cluster, running: str
) -> None:
    browser.open(f"workloads/{running}")
    browser.press("Stop …")
    browser.press("Cancel", "dialog")
    browser.until(lambda: not browser.find_all("dialog"), "no dialog")
    assert cluster.client.get_workload(running).desired_state == "Running"

    browser.press("Stop …")
    browser.press("Stop", "dialog")
    browser.until_text("Stopped", ".status")
    browser.press("Start")
    browser.until_text("Running", ".status")
    revision = cluster.client.get_workload(running).revision_id
    browser.press("Redeploy …")
    browser.press("Redeploy", "dialog")
    browser.until_text("workload redeploy asked", ".timeline")
    assert cluster.client.get_workload(running).revision_id != revision
    browser.press("Delete …")
    browser.press("Delete", "dialog")

    browser.until_text("The workload does not exist")
    browser.until_text("workload deleted", ".timeline")
    assert not cluster.knows(running)


def test_a_failed_workload_can_be_retried_at_once(
    browser: Browser, cluster: Cluster, name: str
) -> None:
    cluster.apply(name, a_container("missing.invalid/none:1", "true"))
    cluster.wait_for(name, "Failed")
    browser.open(f"workloads/{name}")

    browser.press("Retry")

    browser.until_text("workload retry asked", ".timeline")
    cluster.client.delete(name)


def test_a_node_is_cordoned_drained_and_uncordoned(
    browser: Browser, cluster: Cluster, other_node: str, demo_image: str, name: str
) -> None:
    rules = pb.PlacementRules(constraints=[f"zone = {ZONE}"])
    cluster.run_all([name], a_container(demo_image, "sleep", "3600", placement=rules))
    browser.open(f"nodes/{other_node}")
    browser.press("Cordon …")
    browser.press("Cordon", "dialog")
    browser.until_text("Ready (cordoned)")
    browser.press("Uncordon")
    browser.until_no_text("cordoned", "main > p .status")

    browser.press("Drain …")
    browser.fill("#deadline", "5")
    browser.press("Drain", "dialog")

    browser.until_text("fits on no other node")
    browser.until_text("deadline in")
    cluster.client.delete(name)
    browser.until_text("drained")
    browser.press("Uncordon")
    browser.until_text("Ready", "main > p .status")
    cluster.wait_until_node_is("Ready", node_id=other_node)


def test_a_spec_is_previewed_and_applied(
    browser: Browser, cluster: Cluster, demo_image: str, name: str, tmp_path: Path
) -> None:
    browser.open("apply")
    browser.fill("#spec", f"id: {name}\ntype: container\ncontainer:\n  imagee: x\n")
    browser.press("Preview")
    browser.until_text("Line 4: container.imagee", ".callout")

    file = tmp_path / "spec.yaml"
    file.write_text(
        f"id: {name}\ncontainer:\n  image: {demo_image}\n  command: [sleep, '3600']\n  init: true\n"
        "resources: {cpu_millicores: 30, memory_mb: 16}\n"
    )
    browser.find("#spec-file").send_keys(str(file))
    browser.press("Preview")
    browser.until_text("1 create. Nothing was written.")
    assert not cluster.knows(name)
    browser.press("Apply 1 workload")

    browser.until_text(name, "main ul")
    cluster.wait_for(name, "Running")
    browser.press("Preview")
    browser.until_text("1 unchanged")


def test_markup_in_the_log_and_events_of_a_workload_is_shown_as_text(
    browser: Browser, cluster: Cluster, log_writer: str
) -> None:
    browser.open(f"workloads/{log_writer}")

    browser.until_text(f"line {MARKUP}", "[role=log]")
    browser.until_text(f"team={MARKUP}")
    browser.until_text("workload placed", ".timeline")
    browser.until_text("is on ")
    browser.until_text("iB", ".chart:nth-child(2)")
    already = len(browser.text("[role=log]"))
    browser.until(lambda: len(browser.text("[role=log]")) > already, "a log that grows")
    browser.open(f"nodes/{cluster.node_id}")
    browser.until_text(f"note={MARKUP}")
    assert browser.script("return document.querySelectorAll('main img, main b').length") == 0
    assert browser.driver.title == f"{cluster.node_id} · Persys"


# Whether anything is drawn on the canvas of the memory chart.
DRAWN = """
const canvas = document.querySelector(".chart:nth-child(2) canvas");
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
return data.some((value) => value > 0);
"""


def test_usage_is_drawn_and_described(browser: Browser, log_writer: str) -> None:
    browser.open(f"workloads/{log_writer}")

    browser.until_text("maximum", ".chart:nth-child(2)")
    browser.until(lambda: bool(browser.script(DRAWN)), "a curve")
    label = browser.find(".chart:nth-child(2) [role=img]").get_attribute("aria-label")
    assert str(label).startswith("Memory: now ")


# Accessibility.


def test_colours_follow_the_system_until_a_theme_is_chosen(browser: Browser) -> None:
    def background() -> tuple[int, ...]:
        shown = browser.script("return getComputedStyle(document.body).backgroundColor")
        return tuple(int(part) for part in str(shown).strip("rgba()").split(",")[:3])

    browser.prefer("dark")
    browser.open()
    browser.until(lambda: max(background()) < 60, "dark as the system")
    browser.choose("#theme", "light")
    browser.until(lambda: min(background()) > 200, "light as chosen")
    browser.open()
    browser.until(lambda: min(background()) > 200, "light as it was chosen")
    browser.choose("#theme", "")
    browser.until(lambda: max(background()) < 60, "dark as the system again")


def test_every_function_works_with_the_keyboard(
    browser: Browser, cluster: Cluster, running: str
) -> None:
    browser.open()
    browser.until_text("Live", "#freshness")
    browser.key(Keys.TAB)
    assert browser.focused() == "Skip to the content"
    browser.tab_to("Workloads")
    browser.key(Keys.ENTER)
    browser.until_text(running, ".rows")
    browser.key("/")
    assert browser.focused() == "Search"
    browser.key(running)
    browser.until_text("1 of ", "#found")
    browser.tab_to(running)
    browser.key(Keys.ENTER)
    browser.until_text(running, "h1")
    browser.until(lambda: browser.focused() == running, "the focus on the heading")
    browser.tab_to("Delete …")
    browser.key(Keys.ENTER)
    browser.until_text(f"Delete {running}?", "dialog")
    browser.key(Keys.ESCAPE)
    browser.until(lambda: browser.focused() == "Delete …", "the focus where it was")
    browser.key(Keys.ENTER)
    browser.tab_to("Delete")
    browser.key(Keys.ENTER)

    browser.until_text("The workload does not exist")
    eventually(lambda: not cluster.knows(running), "deleted")


def test_every_page_names_its_controls_and_tables_and_fits_a_phone(
    browser: Browser, cluster: Cluster, log_writer: str
) -> None:
    for page in (*PAGES, f"workloads/{log_writer}", f"nodes/{cluster.node_id}"):
        browser.resize(PHONE)
        browser.open(page)
        browser.until_text("Live", "#freshness")
        browser.until_no_text("Loading …")
        wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, page
        browser.resize(DESKTOP)
        assert browser.accessibility_problems() == [], page


# Elements whose text overflows.
CUT = """return [...document.querySelectorAll("main .rows tbody tr:not(.spacer) > *")]
  .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_node_figures_are_not_truncated(browser: Browser, size: tuple[int, int]) -> None:
    browser.resize(size)
    browser.open("nodes")
    browser.until_text("cores (")

    figures = [text for text in browser.script(CUT) if "(" in text]

    assert figures == []


@pytest.mark.parametrize("page", ["nonsense", "nodes/n1/more", "toString", "%E0%A4%A"])
def test_an_unknown_address_shows_a_not_found_page(browser: Browser, page: str) -> None:
    browser.open(page)

    browser.until_text("Page not found", "h1")


def test_a_workload_shows_its_ports_and_restarts(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    port = free_port()
    spec = a_container(demo_image, "sleep", "3600")
    spec.container.ports.add(host_port=port, container_port=80)
    cluster.run_all([name], spec)

    browser.open(f"workloads/{name}")

    browser.until_text(f"{port}")
    browser.until_text("Ports")
    browser.until_text("Restarts")


def test_an_exited_workload_shows_its_exit_code(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    spec = a_container(demo_image, "sh", "-c", "exit 3")
    spec.container.restart_policy = "no"
    cluster.apply(name, spec)
    cluster.wait_for(name, "Failed")

    browser.open(f"workloads/{name}")

    browser.until(lambda: ["Exit code", "3"] in browser.script(FACTS), "the exit code to be shown")


def test_changes_are_announced_to_screen_readers(
    browser: Browser, cluster: Cluster, running: str
) -> None:
    browser.open(f"workloads/{running}")
    browser.until_text("Running", ".status")

    cluster.client.apply(pb.ApplyWorkloadRequest(workload_id=running, desired_state="Stopped"))

    def is_announced() -> bool:
        text = browser.script("return document.getElementById('announce').textContent")
        return f"{running} is Stopped" in text

    browser.until(is_announced, "the change is announced")
