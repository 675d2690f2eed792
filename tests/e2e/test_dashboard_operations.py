"""A day's work in the dashboard: problems, bulk actions, spec changes, sets and jobs. With real Docker.

One browser and one cluster for all tests: each uses its own workloads and changes nothing else.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from e2e.browser import Browser, a_browser
from e2e.cluster import Cluster, a_container
from e2e.gateways import Gateway
from e2e.process import free_port
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

EDITED = """return document.querySelector(".editor")?.shadowRoot
  ?.querySelector(".cm-content").innerText ?? ''"""

Persysctl = Callable[..., subprocess.CompletedProcess[str]]

SET = """\
id: {name}
replicas: 2
update: {{max_parallel: 2, min_healthy: 0s, healthy_deadline: 60s}}
resources: {{cpu_millicores: 20, memory_mb: 16}}
container:
  image: {image}
  init: true
  command: [sleep, "3600"]
  env: {{VERSION: "{version}"}}
"""
JOB = """\
id: {name}
schedule: {{cron: "0 3 1 1 *"}}
job: {{completions: 1}}
resources: {{cpu_millicores: 20, memory_mb: 16}}
container: {{image: {image}, command: ["true"]}}
"""


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "scheduler": {"SCHEDULER_HEARTBEAT_INTERVAL": "1s"},
        "agent": {"PERSYS_STOP_GRACE": "1s"},
    }


@pytest.fixture(scope="module")
def window(cluster: Cluster, module_directory: Path) -> Iterator[Browser]:
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


def apply_file(persysctl: Persysctl, path: Path, text: str) -> None:
    path.write_text(text)
    done = persysctl("apply", "-f", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


# Overview.


def test_a_tile_of_the_overview_opens_its_node(browser: Browser, cluster: Cluster) -> None:
    browser.open()
    browser.until(lambda: bool(browser.find_all(".tile.good")), "a tile")
    tile = browser.find(".tile")
    label = str(tile.get_attribute("aria-label"))
    assert label.startswith(f"{cluster.node_id}: Ready, CPU ")

    tile.click()

    browser.until_text(cluster.node_id, "h1")


def test_a_failed_workload_is_a_problem_with_a_button_that_retries_it(
    browser: Browser, cluster: Cluster, name: str
) -> None:
    cluster.apply(name, a_container("missing.invalid/none:1", "true"))
    cluster.wait_for(name, "Failed")
    browser.open()
    browser.until_text(name, ".problems .bad")

    browser.press(f"Retry {name}")

    browser.until_text(f"{name} is being retried", ".notice")
    browser.until_text(f"workload retry asked {name}", ".timeline")
    cluster.client.delete(name)
    browser.until_no_text(name, ".problems")


def test_a_cordoned_node_is_a_problem_with_a_button_that_uncordons_it(
    browser: Browser, cluster: Cluster
) -> None:
    cluster.client.cordon(cluster.node_id)
    browser.open()
    browser.until(lambda: bool(browser.find_all(".tile.wait")), "a tile of a cordoned node")

    browser.press(f"Uncordon {cluster.node_id}")

    browser.until(lambda: bool(browser.find_all(".tile.good")), "a tile of a ready node")
    browser.until_text("No problems")


# Workloads.


def test_workloads_are_sorted_selected_and_stopped_together(
    browser: Browser,
    cluster: Cluster,
    sleeper: pb.WorkloadSpec,
    names: Callable[[int], list[str]],
) -> None:
    wanted = names(3)
    prefix = wanted[0].removesuffix("-0")
    cluster.run_all(wanted, sleeper)
    browser.open(f"workloads?q={prefix}")
    browser.until_text("3 of ", "#found")

    def rows() -> list[str]:
        return [row.text for row in browser.find_all(".rows tbody th")]

    browser.until(lambda: rows() == wanted, "the order of the ids")
    browser.find("[aria-label='Sort by workload']").click()
    browser.find("[aria-label='Sort by workload']").click()
    browser.until(lambda: rows() == wanted[::-1], "the reverse order")
    assert "sort=-Workload" in browser.driver.current_url

    browser.find(f"[aria-label='Select {wanted[0]}']").click()
    browser.find(f"[aria-label='Select {wanted[2]}']").click()
    browser.until_text("2 workloads selected", ".bulk")
    browser.press("Stop selected …")
    browser.press("Stop", "dialog")

    cluster.wait_for_all([wanted[0], wanted[2]], "Stopped")
    assert cluster.status(wanted[1]) == "Running"
    browser.press("Select all shown")
    browser.press("Delete selected …")
    browser.press("Delete", "dialog")
    browser.until_text("0 of ", "#found")
    cluster.wait_until_gone(wanted)


def test_published_ports_are_links_to_the_node(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    port = free_port()
    spec = a_container(demo_image, "sleep", "3600")
    spec.container.ports.add(host_port=port, container_port=80)
    spec.container.env["PASSWORD"] = "plain"
    cluster.run_all([name], spec)
    browser.open(f"workloads/{name}")

    browser.until(lambda: bool(browser.find_all(f"a[href$=':{port}/']")), "a link to the port")

    link = browser.find(f"a[href$=':{port}/']")
    assert link.text == f"{port}->80/tcp"
    assert link.get_attribute("rel") == "noreferrer"


def test_a_spec_is_edited_previewed_and_applied(
    browser: Browser, cluster: Cluster, sleeper: pb.WorkloadSpec, name: str
) -> None:
    cluster.run_all([name], sleeper)
    browser.open(f"workloads/{name}")
    browser.until(lambda: bool(browser.find_all("summary")), "the page")
    browser.script(
        "[...document.querySelectorAll('summary')]"
        ".find((one) => one.textContent === 'Show the spec').click()"
    )
    browser.until(lambda: "image" in browser.script(EDITED), "the spec in the editor")

    content = browser.find(".editor").shadow_root.find_element(By.CSS_SELECTOR, ".cm-content")
    content.send_keys(Keys.CONTROL, Keys.END)
    content.send_keys("wrong: {")
    browser.press("Preview the change")
    browser.until_text("Line ", ".callout")
    content.send_keys(*[Keys.BACKSPACE] * len("wrong: {"))
    content.send_keys("metadata:", Keys.ENTER, "  tier: gold/")
    assert browser.script(EDITED).rstrip().endswith("metadata:\n  tier: gold/")
    browser.press("Preview the change")
    browser.until_text("1 update. Nothing was written.")
    browser.press("Apply the change")

    eventually(
        lambda: cluster.client.get_workload(name).spec.metadata.get("tier") == "gold/",
        lambda: str(cluster.client.get_workload(name).spec),
    )


# Sets and jobs.


def test_a_set_is_scaled_updated_undone_and_deleted(
    browser: Browser,
    cluster: Cluster,
    persysctl: Persysctl,
    demo_image: str,
    name: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "set.yaml"
    apply_file(persysctl, path, SET.format(name=name, image=demo_image, version=1))
    browser.open("sets")
    browser.until_text(name)
    browser.until_text("2 of 2")
    browser.open(f"sets/{name}")
    browser.until_text("2 of 2 healthy")
    browser.until_text(f"{name}-1")

    browser.press("Scale …")
    browser.fill("#replicas", "3")
    browser.press("Scale", "dialog")
    browser.until_text("3 of 3 healthy")
    browser.until_text(f"{name}-2")
    apply_file(
        persysctl,
        path,
        SET.format(name=name, image=demo_image, version=2).replace("replicas: 2", "replicas: 3"),
    )
    browser.until_text("3 of 3 run revision 2")
    browser.until_text("Steady", "main > p .status")
    browser.press("Undo …")
    browser.press("Undo", "dialog")
    browser.until_text("3 of 3 run revision 1")
    browser.until_text("3 of 3 healthy")
    assert browser.accessibility_problems() == []
    browser.press("Delete …")
    browser.press("Delete", "dialog")

    browser.until_text("The set does not exist")
    cluster.wait_until_gone([f"{name}-{index}" for index in range(3)])


def test_a_job_is_run_suspended_and_deleted(
    browser: Browser, persysctl: Persysctl, demo_image: str, name: str, tmp_path: Path
) -> None:
    apply_file(persysctl, tmp_path / "job.yaml", JOB.format(name=name, image=demo_image))
    browser.open("jobs")
    browser.until_text("0 3 1 1 *")
    browser.open(f"jobs/{name}")
    browser.until_text("No runs yet.")

    browser.press("Run now")
    browser.until_text("Succeeded", "main > p .status")
    browser.until_text("Next run")
    browser.press("Suspend")
    browser.until_text("Suspended", "main > p .status")
    browser.press("Resume")
    browser.until_text("Succeeded", "main > p .status")
    assert browser.accessibility_problems() == []
    browser.press("Delete …")
    browser.press("Delete", "dialog")

    browser.until_text("The job does not exist")
