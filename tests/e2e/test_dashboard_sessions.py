"""Terminals and logs in the dashboard, in a real Chromium, with a real gateway, scheduler, agent and Docker.

One browser and one cluster for all tests: each uses its own workloads and changes nothing else.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from e2e.browser import Browser, a_browser
from e2e.cluster import Cluster, a_container
from e2e.gateways import Gateway, a_guarded_gateway
from persys.client import SchedulerClient
from persys.wire.gen.control.v1 import control_pb2 as pb

MARKUP = "<img src=x onerror=document.title=1><b>bold</b>"
# Sets the title of a terminal, selects a colour, and contains markup.
HOSTILE = r"\033]0;stolen\007\033[31mred " + MARKUP + r"\033[0m"
SCREEN = """return document.querySelector(".terminal")?.shadowRoot
  ?.querySelector(".xterm-rows")?.innerText ?? ''"""


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
        with a_browser(arguments=("--ignore-certificate-errors",)) as created:
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


def screen_shows(browser: Browser, text: str) -> None:
    browser.until(
        lambda: text in str(browser.script(SCREEN)).replace("\xa0", " "), f"{text!r} on the screen"
    )


def type_line(browser: Browser, text: str) -> None:
    keyboard = browser.find(".terminal").shadow_root.find_element(By.CSS_SELECTOR, "textarea")
    keyboard.send_keys(text, Keys.ENTER)


# Terminal.


def test_a_shell_runs_in_the_terminal_and_shows_its_exit_code(
    browser: Browser, cluster: Cluster, sleeper: pb.WorkloadSpec, name: str
) -> None:
    cluster.run_all([name], sleeper)
    browser.open(f"workloads/{name}")
    browser.press("Open terminal")
    browser.until(lambda: bool(browser.find_all(".terminal[data-state=open]")), "a session")

    type_line(browser, "echo sum $((40 + 2)); stty size; tty")
    screen_shows(browser, "sum 42")
    screen_shows(browser, "/dev/pts/")
    type_line(browser, f"printf '{HOSTILE}'")
    screen_shows(browser, f"red {MARKUP}")
    assert browser.driver.title == f"{name} · Persys"
    type_line(browser, "exit 7")

    browser.until_text("The command exited with code 7.")
    assert browser.script("return document.querySelectorAll('main img, main b').length") == 0
    browser.press("Run again")
    browser.until(lambda: bool(browser.find_all(".terminal[data-state=open]")), "a new session")
    type_line(browser, "echo second session")
    screen_shows(browser, "second session")
    browser.press("Close")
    browser.until(lambda: not browser.find_all(".terminal"), "no terminal")


def test_a_command_of_the_user_runs_and_a_lost_workload_ends_the_session(
    browser: Browser, cluster: Cluster, sleeper: pb.WorkloadSpec, name: str
) -> None:
    cluster.run_all([name], sleeper)
    browser.open(f"workloads/{name}")
    browser.fill("input[name=command]", "sh -c 'echo \"two  words\"; exec cat'")
    browser.press("Open terminal")
    screen_shows(browser, "two  words")

    cluster.client.delete(name)

    browser.until(lambda: bool(browser.find_all(".terminal[data-state=ended]")), "the end")


def test_the_terminal_is_offered_to_operators_and_not_to_viewers(
    window: Browser, tmp_path: Path
) -> None:
    address = window.address
    with a_guarded_gateway(tmp_path) as (gateway, client):
        client.apply(pb.ApplyWorkloadRequest(workload_id="w", spec=a_container("any:1", "true")))
        window.address = gateway.address
        try:
            sign_in(window, client, "viewer")
            window.until_text("Log", "main")
            window.until(lambda: "Terminal" not in headings(window), "no terminal")
            sign_in(window, client, "operator")
            window.until(lambda: "Terminal" in headings(window), "a terminal")
        finally:
            window.script("sessionStorage.clear()")
            window.address = address


def headings(browser: Browser) -> list[str]:
    return [one.text for one in browser.find_all("main h2")]


def sign_in(browser: Browser, client: SchedulerClient, role: str) -> None:
    made = client.create_token(role, role)
    browser.open("access")
    browser.fill("#token", made.secret)
    browser.press("Sign in")
    browser.until_text(role, ".facts")
    browser.until_text(f"{role} ({role})", "header")
    browser.driver.execute_script("location.hash = '#/workloads/w'")
    browser.until_text("w", "h1")
    browser.until_text("Details")


def test_a_question_mark_shows_the_keys_and_a_slash_goes_to_the_search(browser: Browser) -> None:
    browser.open("workloads")
    browser.until_text("main", "header")
    browser.key("?")
    browser.until_text("Keyboard shortcuts", "dialog")
    browser.press("Close", "dialog")
    browser.until(lambda: not browser.find_all("dialog"), "no dialog")

    browser.key("/")

    assert browser.focused() == "Search"


# Logs.


def test_a_log_is_searched_paused_and_shown_as_text(
    browser: Browser, cluster: Cluster, demo_image: str, name: str
) -> None:
    line = f"i=0; while :; do i=$((i+1)); printf '{HOSTILE} %d\\n' $i; sleep 0.1; done"
    cluster.run_all([name], a_container(demo_image, "sh", "-c", line))
    browser.open(f"workloads/{name}")
    browser.until_text(f"red {MARKUP} 12", "[role=log]")

    browser.fill("input[name=log-search]", "bold</b> 12")
    browser.until(lambda: browser.text("[role=log] mark") == "bold</b> 12", "a highlight")
    assert "stolen" not in browser.text("[role=log]")
    assert browser.script("return document.querySelectorAll('main img, main b').length") == 0
    browser.fill("input[name=log-search]", " ")
    browser.press("Pause")
    browser.until_text("Paused.")
    before = browser.text("[role=log]")
    browser.until_text("live")
    assert browser.text("[role=log]") == before
    browser.press("Continue")
    browser.until(lambda: len(browser.text("[role=log]")) > len(before), "new lines")
    cluster.client.delete(name)


def test_the_logs_of_several_workloads_are_shown_together(
    browser: Browser, cluster: Cluster, demo_image: str, names: Callable[[int], list[str]]
) -> None:
    first, second = names(2)
    for one in (first, second):
        line = f"while :; do echo from-{one}; sleep 0.3; done"
        cluster.apply(one, a_container(demo_image, "sh", "-c", line))
    cluster.wait_for_all([first, second], "Running")
    browser.open(f"logs?ids={first}")
    browser.until_text(f"from-{first}", "[role=log]")
    browser.fill("input[name=workload]", second)
    browser.press("Add")

    browser.until_text(f"{second} from-{second}", "[role=log]")
    browser.until_text(f"{first} from-{first}", "[role=log]")
    assert f"ids={first}%2C{second}" in browser.driver.current_url
    browser.find(f"[aria-label='Remove {first}']").click()
    browser.until_no_text(f"from-{first}", "[role=log]")
    for one in (first, second):
        cluster.client.delete(one)
