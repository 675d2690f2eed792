"""A headless Chromium, and the operations of tests on a page. No operation waits a fixed time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from e2e.waiting import eventually
from persys.cli.local.packages import find_command

DESKTOP = (1280, 900)
PHONE = (390, 844)
WITHIN_SECONDS = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)

# Elements that a screen reader cannot announce.
_ACCESSIBILITY_PROBLEMS = """
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

_AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
_RUN_AXE = """
const done = arguments[0];
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
axe.run(document, { runOnly: { type: "tag", values: tags } }).then(
  ({ violations }) => done(violations.flatMap(
    ({ id, nodes }) => nodes.map((one) => `${id}: ${one.html} ${one.failureSummary}`))),
  (error) => done([String(error)]));
"""


class Browser:
    """One browser window for the pages of one gateway."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self.address = ""

    @contextmanager
    def used(self) -> Iterator[Self]:
        """For one test: reset before it; after it, the browser must have logged no errors."""
        self.resize(DESKTOP)
        self.prefer("light")
        self.logged_errors()
        yield self
        self.script("sessionStorage.clear(); localStorage.clear()")
        errors = self.logged_errors()
        assert errors == [], errors

    def open(self, page: str = "") -> None:
        """Load the page again, without state in memory."""
        self.until(lambda: self.load(page), f"an answer of {self.address}")
        self.until(lambda: bool(self.find_all("h1")), "a heading")

    def load(self, page: str = "") -> bool:
        """False if the load failed: Chromium aborts a load when the networks of the host change."""
        try:
            self.driver.get("about:blank")
            self.driver.get(f"{self.address}/ui/#/{page}")
        except WebDriverException:
            return False
        # Sometimes Chromium shows its own error page instead.
        return not str(self.script("return location.href")).startswith("chrome-error:")

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def find(self, css: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def find_all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str = "main") -> str:
        """Empty if there is no such element."""
        found = self.script(
            "return document.querySelector(arguments[0])?.innerText.trim() ?? ''", css
        )
        return str(found)

    def until(
        self, holds: Callable[[], bool], what: str, *, within: float = WITHIN_SECONDS
    ) -> None:
        def safely() -> bool:
            try:
                return holds()
            except (NoSuchElementException, StaleElementReferenceException):
                return False  # the page was redrawn in the meantime

        def shown() -> str:
            log = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            return f"{what}; the page is\n{self.text('body')[:3000]}\n{log}"

        eventually(safely, shown, within=within)

    def until_text(self, wanted: str, css: str = "main") -> None:
        self.until(lambda: wanted in self.text(css), f"{wanted!r} in {css}")

    def until_no_text(self, unwanted: str, css: str = "main") -> None:
        self.until(lambda: unwanted not in self.text(css), f"no {unwanted!r} in {css}")

    def press(self, name: str, css: str = "main") -> None:
        """Click the button with this name when it is enabled."""

        def pressed() -> bool:
            for button in self.find_all(f"{css} button:enabled"):
                if button.text == name:
                    # Otherwise it may be below the last line, which stays at the bottom.
                    self.script("arguments[0].scrollIntoView({ block: 'center' })", button)
                    button.click()
                    return True
            return False

        self.until(pressed, f"a button {name!r}")

    def fill(self, css: str, text: str) -> None:
        self.until(lambda: bool(self.find_all(css)), f"a field {css}")
        field = self.find(css)
        # As a user does it: after `clear()` the page gets no event, and may restore the text.
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.BACKSPACE)
        field.send_keys(text)

    def choose(self, css: str, value: str) -> None:
        def chosen() -> bool:
            for option in self.find_all(f"{css} option"):
                if option.get_property("value") == value:
                    option.click()
                    return True
            return False

        self.until(chosen, f"{value} in {css}")

    def key(self, *keys: str) -> None:
        """Send keys to the focused element."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def tab_to(self, name: str, *, most: int = 60) -> None:
        """Move the focus with the Tab key only."""
        for _ in range(most):
            self.key(Keys.TAB)
            if self.focused() == name:
                return
        raise AssertionError(f"{name!r} was not reached; the focus is on {self.focused()!r}")

    def focused(self) -> str:
        found = self.script(
            "const one = document.activeElement;"
            "return one.getAttribute('aria-label') || one.labels?.[0]?.innerText || one.innerText"
        )
        return str(found or "").strip()

    def resize(self, size: tuple[int, int]) -> None:
        """Resize the page: a headless window cannot be as narrow as a phone."""
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def block(self, *addresses: str) -> None:
        """Block these URLs, with * as a wildcard. No URLs: block nothing."""
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": list(addresses)})

    def prefer(self, scheme: str) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )

    def logged_errors(self) -> list[str]:
        """Errors that the browser logged since the last call, without refused requests."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            if entry["source"] != "network" and entry["level"] == "SEVERE"
        ]

    def accessibility_problems(self) -> list[str]:
        """Controls without a name, tables without headers, missing landmarks, duplicate ids."""
        return list(self.script(_ACCESSIBILITY_PROBLEMS))

    def axe_problems(self) -> list[str]:
        """Violations of WCAG 2.2 A and AA on the current page, by axe-core."""
        self.script(_AXE.read_text())
        return list(self.driver.execute_async_script(_RUN_AXE))

    def picture(self, path: Path) -> None:
        path.write_bytes(self.driver.get_screenshot_as_png())


@contextmanager
def a_browser(*, arguments: tuple[str, ...] = ()) -> Iterator[Browser]:
    chromium, chromedriver = find_command("chromium"), find_command("chromedriver")
    assert chromium is not None, "make engines installs it"
    options = ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with TemporaryDirectory(prefix="persys-browser-", ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}", *arguments):
            options.add_argument(flag)
        driver = Chrome(options=options, service=ChromeService(chromedriver))
        try:
            browser = Browser(driver)
            browser.resize(DESKTOP)
            yield browser
        finally:
            driver.quit()
