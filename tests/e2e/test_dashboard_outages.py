"""The dashboard in a real Chromium during outages, with many workloads, and with TLS. Without a node.

The scheduler has ten thousand workloads; the gateway has a second cluster, which is unreachable.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.browser import Browser, a_browser
from e2e.cluster import Cluster, a_container
from e2e.gateways import Gateway, a_guarded_gateway
from e2e.large_cluster import a_large_cluster
from e2e.process import free_port
from persys.client import SchedulerClient
from persys.wire.gen.control.v1 import control_pb2 as pb

WORKLOAD_COUNT = 10_000


@pytest.fixture(scope="module")
def large_cluster(module_directory: Path) -> Iterator[Cluster]:
    with a_large_cluster(module_directory / "crowded", WORKLOAD_COUNT) as created:
        yield created


@pytest.fixture(scope="module")
def gateway(large_cluster: Cluster, module_directory: Path) -> Iterator[Gateway]:
    unavailable = f"127.0.0.1:{free_port()}"
    created = Gateway(module_directory, {"main": large_cluster.target, "away": unavailable})
    try:
        created.process.start()
        yield created
    finally:
        created.process.close()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with a_browser(arguments=("--ignore-certificate-errors",)) as created:
        yield created


@pytest.fixture
def browser(window: Browser, gateway: Gateway) -> Iterator[Browser]:
    window.address = gateway.address
    with window.used() as created:
        yield created


def test_ten_thousand_workloads_are_listed_and_filtered(browser: Browser) -> None:
    browser.open("workloads")
    browser.until_text(f"{WORKLOAD_COUNT} of {WORKLOAD_COUNT} workloads", "#found")
    assert browser.script("return document.querySelectorAll('.rows tr').length") < 150
    assert browser.find(".rows table").get_attribute("aria-rowcount") == str(WORKLOAD_COUNT + 1)

    browser.script("const box = document.querySelector('.rows'); box.scrollTop = box.scrollHeight")
    browser.until_text(f"web-{WORKLOAD_COUNT - 1:05}", ".rows")
    browser.fill("input[type=search]", "db-0")
    browser.until_text(f"{WORKLOAD_COUNT // 100} of {WORKLOAD_COUNT} workloads", "#found")
    browser.until_text("db-00000", ".rows")
    browser.fill("input[type=search]", "db-00100")
    browser.until_text("1 of ", "#found")


def test_the_page_shows_a_scheduler_outage_and_recovers_after_it(
    browser: Browser, large_cluster: Cluster
) -> None:
    browser.open("workloads/web-00001")
    browser.until_text("Live", "#freshness")
    browser.until_text("Stopped", ".status")

    large_cluster.scheduler.kill()
    browser.until_text("The scheduler cannot be reached", "#banner")
    browser.until_text("Not live, data", "#freshness")
    assert "Stopped" in browser.text()
    large_cluster.scheduler.start()

    browser.until_text("Live", "#freshness")
    assert browser.text("#banner") == ""
    large_cluster.client.delete("web-00001")
    browser.until_text("workload deleted", ".timeline")


def test_the_page_shows_a_gateway_outage_and_recovers_after_it(
    browser: Browser, gateway: Gateway
) -> None:
    browser.open()
    browser.until_text("workloads", ".figure")

    gateway.process.kill()
    browser.until_text("The gateway does not respond", "#banner")
    gateway.process.start()

    browser.until_text("Live", "#freshness")
    browser.until_text("normal")


def test_a_partly_loaded_page_is_reloaded(browser: Browser) -> None:
    browser.block("*app.js")
    browser.until(browser.load, "the page")
    browser.until_text("The gateway does not respond")

    browser.block()

    browser.until_text("Overview", "h1")


def test_every_cluster_of_the_gateway_can_be_selected(browser: Browser) -> None:
    browser.open()
    browser.until_text("workloads", ".figure")
    browser.choose("#cluster", "away")
    browser.until_text("The scheduler cannot be reached", "#banner")
    browser.until_no_text("workloads", ".figure")
    browser.choose("#cluster", "main")

    browser.until_text("workloads", ".figure")
    assert browser.text("#banner") == ""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, SchedulerClient]]:
    with a_guarded_gateway(tmp_path_factory.mktemp("guarded")) as created:
        yield created


def test_a_user_without_a_certificate_signs_in_with_a_token(
    browser: Browser,
    guarded: tuple[Gateway, SchedulerClient],
) -> None:
    gateway, admin = guarded
    admin.apply(pb.ApplyWorkloadRequest(workload_id="web", spec=a_container("any")))
    secret = admin.create_token("ann", "viewer").secret
    browser.address = gateway.address
    browser.open()
    browser.until_text("Access denied", "#banner")
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
    browser.press("Sign out")
    browser.until_text("Access denied", "#banner")


CLAIMS = ("No node has joined", "No events yet", "does not exist", "0 of 0", "0 workloads")


@pytest.mark.parametrize("page", ["", "nodes", "workloads", "events", "nodes/n1", "workloads/web"])
def test_a_page_shows_nothing_of_the_cluster_before_sign_in(
    browser: Browser, guarded: tuple[Gateway, SchedulerClient], page: str
) -> None:
    browser.address = guarded[0].address
    browser.open(page)

    browser.until_text("Access denied", "#banner")
    browser.until_text("Not shown: sign in first.")
    assert [claim for claim in CLAIMS if claim in browser.text("main")] == []
