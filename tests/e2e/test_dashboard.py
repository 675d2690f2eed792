"""The dashboard in a real Chromium, before a real gateway, scheduler, agents and Docker.

One browser and one cluster for all tests: each uses workloads of its own and leaves the rest as it was.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from certified import Root
from e2e.browser import DESKTOP, PHONE, Browser, a_browser
from e2e.cluster import BIN, Cluster
from e2e.crowded import fill
from e2e.gateways import Gateway
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.client.call import Trust
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2 as pb

CROWD = 10_000
ZONE = "east"
MARKUP = "<img src=x onerror=document.title=1><b>bold</b>"
# To look for the others takes seconds at each start of an agent.
ONLY_CONTAINERS = {"PERSYS_COMPOSE_ENABLED": "false", "PERSYS_VM_ENABLED": "false"}
PAGES = ("", "workloads", "nodes", "events", "apply", "access")


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "scheduler": {"SCHEDULER_HEARTBEAT_INTERVAL": "1s"},
        "agent": {**ONLY_CONTAINERS, "PERSYS_NODE_LABELS": f"note={MARKUP}"},
    }


@pytest.fixture(scope="module")
def other_node(cluster: Cluster) -> str:
    return cluster.add_node(**ONLY_CONTAINERS, PERSYS_NODE_LABELS=f"zone={ZONE}")


@pytest.fixture(scope="module")
def talker(cluster: Cluster, demo_image: str) -> str:
    """Begun with the first test: when its own comes, its figures are there."""
    line = f'while true; do echo "said {MARKUP}"; sleep 0.2; done'
    spec = spec_of(demo_image, "sh", "-c", line, metadata={"team": MARKUP})
    cluster.apply("talker", spec)
    return "talker"


@pytest.fixture(scope="module")
def crowded(cluster: Cluster, module_directory: Path) -> Iterator[Cluster]:
    """Another cluster: ten thousand workloads and no node."""
    directory = module_directory / "crowded"
    directory.mkdir()
    names = [f"{'db' if number % 100 == 0 else 'web'}-{number:05}" for number in range(CROWD)]
    fill(directory / "scheduler.db", names)
    made = Cluster(directory)
    try:
        made.scheduler.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def gateway(cluster: Cluster, crowded: Cluster, module_directory: Path) -> Iterator[Gateway]:
    away = f"127.0.0.1:{free_port()}"
    clusters = {"main": cluster.target, "crowded": crowded.target, "away": away}
    made = Gateway(module_directory, clusters)
    made.process.start()
    try:
        yield made
    finally:
        made.process.close()


@pytest.fixture(scope="module")
def window(gateway: Gateway, other_node: str, talker: str) -> Iterator[Browser]:
    with a_browser(arguments=("--ignore-certificate-errors",)) as made:
        made.address = gateway.address
        yield made


@pytest.fixture
def browser(window: Browser, gateway: Gateway) -> Iterator[Browser]:
    """Nothing of what a page does may displease the browser, its rules for scripts among it."""
    window.address = gateway.address
    window.resize(DESKTOP)
    window.prefer("light")
    window.complaints()
    yield window
    window.script("sessionStorage.clear(); localStorage.clear()")
    assert window.complaints() == []


@pytest.fixture
def name(names: Callable[[int], list[str]]) -> str:
    return names(1)[0]


@pytest.fixture
def running(cluster: Cluster, sleeper: pb.WorkloadSpec, name: str) -> str:
    cluster.run_all([name], sleeper)
    return name


def spec_of(image: str, *command: str, **more: Any) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(
            cpu_millicores=more.pop("cpu", 30), memory_mb=more.pop("memory", 16)
        ),
        container=pb.ContainerSpec(image=image, command=command, init=True),
        **more,
    )


# Pages.


def test_the_overview_tells_how_the_cluster_is_and_follows_it(
    browser: Browser, cluster: Cluster, sleeper: pb.WorkloadSpec, name: str
) -> None:
    browser.open()
    browser.until_text("2 of 2 ready")
    browser.until_text("normal")
    browser.until_text("Any one node could be lost")
    for resource in ("Cpu", "Memory", "Disk"):
        assert resource in browser.text(".gauges")
    browser.until_text("% used", ".gauges")
    browser.until_text("Live", "#freshness")

    cluster.apply(name, sleeper)

    browser.until_text(f"workload running {name}", ".timeline")


def test_a_node_without_which_something_would_have_no_place_is_named(
    browser: Browser, cluster: Cluster, other_node: str, demo_image: str, name: str
) -> None:
    rules = pb.PlacementRules(constraints=[f"zone = {ZONE}"])
    cluster.run_all([name], spec_of(demo_image, "sleep", "3600", placement=rules))

    browser.open()

    browser.until_text(f"without {other_node}, 1 workload would find no place")
    cluster.client.delete(name)
    cluster.wait_until_gone([name])


def test_nodes_are_listed_and_described(
    browser: Browser, cluster: Cluster, other_node: str
) -> None:
    browser.open("nodes")
    browser.until_text(other_node)
    assert browser.script("return document.querySelectorAll('tbody tr').length") == 2

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
    cluster.apply(waiting, spec_of(demo_image, "true", cpu=900_000))
    node = cluster.client.get_workload(running).assigned_node_id
    browser.open("workloads")

    def shows(*wanted: str) -> None:
        def so() -> bool:
            rows = browser.find_all(".rows tbody th")
            return [row.text for row in rows if row.text.startswith(running)] == list(wanted)

        browser.until(so, f"only {wanted} in the list")

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

    # What was chosen is in the address, so a reload shows the same.
    assert "type=vm" in browser.driver.current_url
    browser.driver.refresh()
    browser.until_text("0 of ", "#found")
    cluster.client.delete(waiting)


def test_what_waits_says_why_and_what_would_help(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    cluster.apply(name, spec_of(demo_image, "true", cpu=900_000))
    browser.open(f"workloads/{name}")

    browser.until_text("Unplaceable", ".callout")
    browser.until_text("What would place it")
    browser.until_text("0 of 2 could take it")
    cluster.client.delete(name)


def test_events_are_searched(browser: Browser, talker: str) -> None:
    browser.open("events")
    browser.until_text(talker, ".timeline")

    browser.fill("input[type=search]", f"{talker} placed")

    browser.until(lambda: len(browser.find_all(".timeline li")) == 1, "one event")


# Deeds.


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

    browser.until_text("There is no such workload")
    browser.until_text("workload deleted", ".timeline")
    assert not cluster.knows(running)


def test_what_failed_is_tried_again_at_once(browser: Browser, cluster: Cluster, name: str) -> None:
    cluster.apply(name, spec_of("missing.invalid/none:1", "true"))
    cluster.wait_for(name, "Failed")
    browser.open(f"workloads/{name}")

    browser.press("Retry")

    browser.until_text("workload retry asked", ".timeline")
    cluster.client.delete(name)


def test_a_node_is_cordoned_drained_and_taken_back(
    browser: Browser, cluster: Cluster, other_node: str, demo_image: str, name: str
) -> None:
    rules = pb.PlacementRules(constraints=[f"zone = {ZONE}"])
    cluster.run_all([name], spec_of(demo_image, "sleep", "3600", placement=rules))
    browser.open(f"nodes/{other_node}")
    browser.press("Cordon …")
    browser.press("Cordon", "dialog")
    browser.until_text("Ready (cordoned)")
    browser.press("Uncordon")
    browser.until_no_text("cordoned", "main > p .status")

    browser.press("Drain …")
    browser.fill("#deadline", "5")
    browser.press("Drain", "dialog")

    browser.until_text("fits nowhere else")
    browser.until_text("deadline in")
    cluster.client.delete(name)
    browser.until_text("drained")
    browser.press("Uncordon")
    browser.until_text("Ready", "main > p .status")
    cluster.wait_until_node_is("Ready", node_id=other_node)


def test_a_spec_is_previewed_and_then_applied(
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


def test_a_workload_tells_its_life_and_markup_in_it_is_only_text(
    browser: Browser, cluster: Cluster, talker: str
) -> None:
    browser.open(f"workloads/{talker}")

    browser.until_text(f"said {MARKUP}", "[role=log]")
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


def test_usage_is_drawn_as_a_curve_of_what_was_seen(browser: Browser) -> None:
    browser.open()
    drawn = browser.driver.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        import("/ui/charts.js").then(({ Series, chart }) => {
          const series = new Series();
          for (const [second, bytes] of [[10, 100], [20, 300], [20, 300], [30, 700]])
            series.add({ collected_at: new Date(second * 1000).toISOString(), net_rx_bytes: `${bytes}` });
          const rates = series.rates("net_rx_bytes", "net_tx_bytes");
          const made = chart("Network", rates, (value) => `${value} B/s`);
          const svg = made.querySelector("svg");
          done([svg.getAttribute("aria-label"), made.querySelector(".curve").getAttribute("d")]);
        });
        """
    )

    assert drawn == ["Network: now 40 B/s, at most 40 B/s in the last 10 s", "M0.0 35.0L300.0 4.0"]


# Trouble, and other places.


def test_a_scheduler_that_dies_is_told_of_and_its_return_heals_the_page(
    browser: Browser, cluster: Cluster, running: str
) -> None:
    browser.open(f"workloads/{running}")
    browser.until_text("Live", "#freshness")

    cluster.scheduler.kill()
    browser.until_text("The scheduler cannot be reached", "#banner")
    browser.until_text("Not live, data", "#freshness")
    assert running in browser.text("h1")
    cluster.scheduler.start()

    browser.until_text("Live", "#freshness")
    assert browser.text("#banner") == ""
    cluster.client.delete(running)
    browser.until_text("workload deleted", ".timeline")


def test_a_gateway_that_dies_is_told_of_and_its_return_heals_the_page(
    browser: Browser, gateway: Gateway
) -> None:
    browser.open("nodes")
    browser.until_text("Live", "#freshness")

    gateway.process.kill()
    browser.until_text("The gateway does not answer", "#banner")
    gateway.process.start()

    browser.until_text("Live", "#freshness")
    browser.until_text("Ready", "tbody")


def test_each_cluster_behind_the_gateway_can_be_chosen(browser: Browser, cluster: Cluster) -> None:
    browser.open("nodes")
    browser.until_text(cluster.node_id)
    browser.choose("#cluster", "away")
    browser.until_text("The scheduler cannot be reached", "#banner")
    assert cluster.node_id not in browser.text()
    browser.choose("#cluster", "crowded")
    browser.until_text("No node has joined yet")
    browser.choose("#cluster", "main")

    browser.until_text(cluster.node_id)
    assert browser.text("#banner") == ""


def test_ten_thousand_workloads_are_listed_and_filtered(browser: Browser) -> None:
    browser.open()
    browser.choose("#cluster", "crowded")
    browser.open("workloads")
    browser.until_text(f"{CROWD} of {CROWD} workloads", "#found")
    assert browser.script("return document.querySelectorAll('.rows tr').length") < 150
    assert browser.find(".rows table").get_attribute("aria-rowcount") == str(CROWD + 1)

    browser.script("const box = document.querySelector('.rows'); box.scrollTop = box.scrollHeight")
    browser.until_text(f"web-{CROWD - 1:05}", ".rows")
    browser.fill("input[type=search]", "db-0")
    browser.until_text(f"{CROWD // 100} of {CROWD} workloads", "#found")
    browser.until_text("db-00000", ".rows")
    browser.fill("input[type=search]", "db-00100")
    browser.until_text("1 of ", "#found")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Gateway, SchedulerClient]]:
    """A cluster with certificates, and an administrator's way in."""
    root = Root(tmp_path / "certs")
    port = free_port()
    scheduler = Process(
        [str(BIN / "persys-scheduler")],
        {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(free_port()),
            "PERSYS_STORE": f"sqlite:{tmp_path / 'scheduler.db'}",
            **root.variables(root.write(Role.SCHEDULER, "s1")),
        },
        log=tmp_path / "scheduler.log",
        ready=lambda: listens_on(port),
    )
    files = root.write(Role.GATEWAY, "g1", hosts=("127.0.0.1",))
    gateway = Gateway(tmp_path, {"main": f"127.0.0.1:{port}"}, root.variables(files))
    trust = Trust(root.write(Role.ADMIN, "me"))
    try:
        scheduler.start()
        gateway.process.start()
        with SchedulerClient(f"127.0.0.1:{port}", trust=trust) as client:
            yield gateway, client
    finally:
        gateway.process.close()
        scheduler.close()


def test_who_has_no_certificate_signs_in_with_a_token_and_sees_what_it_allows(
    browser: Browser,
    guarded: tuple[Gateway, SchedulerClient],
    sleeper: pb.WorkloadSpec,
) -> None:
    gateway, admin = guarded
    admin.apply(pb.ApplyWorkloadRequest(workload_id="web", spec=sleeper))
    secret = admin.create_token("ann", "viewer").secret
    browser.address = gateway.address
    browser.open()
    browser.until_text("You are not let in", "#banner")
    browser.find("#banner a").click()

    browser.fill("#token", secret)
    browser.press("Sign in")

    browser.until_text("ann")
    browser.until_text("viewer")
    browser.until_text("Live", "#freshness")
    assert secret not in browser.driver.page_source
    browser.open("workloads/web")
    browser.until_text("Pending", ".status")
    assert all(not one.is_enabled() for one in browser.find_all("main .row button"))
    browser.open("access")
    browser.press("Forget the token")
    browser.until_text("You are not let in", "#banner")


# For everybody.


def test_colours_follow_the_system_until_one_chooses(browser: Browser) -> None:
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


def test_no_page_is_wider_than_a_phone(browser: Browser, cluster: Cluster, talker: str) -> None:
    browser.resize(PHONE)
    for page in (*PAGES, f"workloads/{talker}", f"nodes/{cluster.node_id}"):
        browser.open(page)
        browser.until_text("Live", "#freshness")
        if page == f"workloads/{talker}":
            browser.until_text("is on ")
        wide = browser.script("return document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, page


def test_everything_can_be_done_with_the_keyboard(
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

    browser.until_text("There is no such workload")
    eventually(lambda: not cluster.knows(running), "deleted")


NAMELESS = """
const named = (one) => (one.getAttribute("aria-label") || one.labels?.[0]?.textContent
  || one.textContent || "").trim();
const controls = [...document.querySelectorAll("a, button, input, select, textarea")];
const tables = [...document.querySelectorAll("table")];
const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
return [
  ...controls.filter((one) => !named(one)).map((one) => one.outerHTML),
  ...tables.filter((one) => !one.caption?.textContent || !one.querySelector("thead th[scope=col]"))
    .map((one) => one.outerHTML),
  ...["header", "nav[aria-label]", "main", "footer", "[aria-live=polite]"]
    .filter((css) => !document.querySelector(css)),
  ...[...document.querySelectorAll("svg:not([aria-hidden]):not([aria-label])")].map((one) => one.outerHTML),
  ...ids.filter((id, index) => ids.indexOf(id) !== index),
  ...(document.querySelectorAll("h1").length === 1 ? [] : ["not one h1"]),
];
"""


def test_every_control_has_a_name_and_every_table_its_heads(
    browser: Browser, cluster: Cluster, talker: str
) -> None:
    for page in (*PAGES, f"workloads/{talker}", f"nodes/{cluster.node_id}"):
        browser.open(page)
        browser.until_text("Live", "#freshness")
        assert browser.script(NAMELESS) == [], page


def test_changes_are_told_to_those_who_do_not_see_them(
    browser: Browser, cluster: Cluster, running: str
) -> None:
    browser.open(f"workloads/{running}")
    browser.until_text("Running", ".status")

    cluster.client.apply(pb.ApplyWorkloadRequest(workload_id=running, desired_state="Stopped"))

    def told() -> bool:
        said = browser.script("return document.getElementById('announce').textContent")
        return f"{running} is Stopped" in said

    browser.until(told, "the change is announced")


# What the gateway serves.


def fetched(
    address: str, path: str, *, body: bytes | None = None, **headers: str
) -> tuple[int, Message, bytes]:
    connection = HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET" if body is None else "POST", path, body, told)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_files_are_kept_by_the_browser_and_scripts_come_only_from_them(window: Browser) -> None:
    status, headers, packed = fetched(window.address, "/ui/", Accept_Encoding="gzip")
    kept, _, nothing = fetched(window.address, "/ui/", If_None_Match=headers["ETag"])

    assert (status, kept, nothing) == (200, 304, b"")
    assert "http" not in gzip.decompress(packed).decode()
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_spec_file_is_refused_with_its_line(window: Browser) -> None:
    file = b"id: a\nvm:\n  vcpu: 1\n"
    status, _, body = fetched(window.address, "/api/v1/specs/parse", body=file)

    told = json.loads(body)
    assert (status, told["status"], told["line"], told["field"]) == (400, 400, 3, "vm.vcpu")
