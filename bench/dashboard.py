"""The list of 10,000 workloads in Chromium, over one of 100, and the longest block of the main thread.

    python -m bench.dashboard

A key stroke is timed from the change of the search field to the frame with the results.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from bench.processes import BIN, free_port, process, scheduler, until
from bench.stored import commit_bare, marker_unit, node_units, units
from bench.verdict import Verdict, report
from persys.cli.local.packages import find_command
from persys.infra.clock import SystemClock
from persys.store.sqlite import SqliteStore

FEW, MANY, NODES = 100, 10_000, 20
BLOCK_MS_MAX = 200
KEYS = ("s", "st", "sto", "stored-9", "stored-", "node-00007", "")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")

# Installed before the scripts of the page: records blocks of the main thread of 50 ms or more.
WATCH = """
globalThis.blocks = [];
new PerformanceObserver((list) => globalThis.blocks.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
"""
TYPE = """
const [text, done] = arguments;
const field = document.querySelector("input[type=search]");
const began = performance.now();
field.value = text;
field.dispatchEvent(new Event("input", { bubbles: true }));
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""
SCROLL = """
const [at, done] = arguments;
const box = document.querySelector(".rows");
const began = performance.now();
box.scrollTop = at * box.scrollHeight;
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""


def main() -> None:
    with _browser() as driver:
        few, _ = _measured(driver, FEW)
        many, block = _measured(driver, MANY)
    report(
        Verdict("dashboard: a key stroke in 10,000 workloads over one in 100", many / few),
        Verdict(
            f"dashboard: longest block of the page with 10,000 workloads over {BLOCK_MS_MAX} ms",
            block / BLOCK_MS_MAX,
            at_most=1,
        ),
    )


def _measured(driver: Chrome, count: int) -> tuple[float, float]:
    """Milliseconds of a key stroke or a jump in the list, and of the longest block in that time."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scheduler.db"
        asyncio.run(_fill(path, count))
        with (
            scheduler(f"sqlite:{path}", SCHEDULER_NODE_LEASE="10m") as (port, _, _),
            _gateway(port) as address,
        ):
            driver.get("about:blank")
            driver.get(f"{address}/ui/#/workloads")
            until(lambda: _found(driver).startswith(f"{count} of {count} w"), "the whole list")
            times = [driver.execute_async_script(TYPE, text) for text in KEYS]
            times += [driver.execute_async_script(SCROLL, at / 10) for at in range(11)]
            until(lambda: _found(driver).startswith(f"{count} of"), "the whole list again")
            return median(times), max(driver.execute_script("return globalThis.blocks"), default=0)


def _found(driver: Chrome) -> str:
    return str(driver.execute_script("return document.getElementById('found')?.textContent ?? ''"))


async def _fill(path: Path, count: int) -> None:
    store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
    try:
        stored = [marker_unit(), *node_units(NODES), *units(count, nodes=NODES)]
        await commit_bare(store, stored, 500)
    finally:
        await store.close()


@contextmanager
def _gateway(scheduler_port: int) -> Iterator[str]:
    port = free_port()
    settings = {
        "PERSYS_GATEWAY_PORT": str(port),
        "PERSYS_GATEWAY_AUDIT_DB": "memory",
        "PERSYS_GATEWAY_PUBLIC_PORT": str(free_port()),
        "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{scheduler_port}",
        "LOG_LEVEL": "warning",
    }
    with process([str(BIN / "persys-gateway"), "-insecure"], env=settings, port=port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _browser() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = find_command("chromium") or "chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = Chrome(options=options, service=ChromeService(find_command("chromedriver")))
        try:
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            yield driver
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
