"""The command `persys bench`, and its results: a table, and an HTML page with plots.

The plots are SVG made here. A plotting library would be the largest dependency of Persys, for one page.
"""

import os
import platform
from argparse import Namespace
from collections.abc import Sequence
from html import escape
from math import floor, log10
from pathlib import Path

from persys import __version__
from persys.cli.benchmark import figures
from persys.cli.benchmark.figures import Curve, Figure
from persys.cli.framework.exit_codes import ExitCode, SetupError
from persys.cli.framework.live import LineProgress
from persys.cli.framework.output import align_columns
from persys.cli.local.demo import ensure_image
from persys.cli.local.docker import docker_version
from persys.infra.atomic_files import write_file

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 60
_COLORS = {"figure": "#0b6bcb", "floor": "#777777"}
_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>persys bench</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }}
td, th {{ padding: 0.2rem 1rem 0.2rem 0; text-align: left }}
svg text {{ font: 12px sans-serif }}
</style>
<h1>persys bench</h1>
<table>{machine}</table>
<h2>Figures</h2>
<p>The ratio is the time of Persys over the time of the floor: the same work without Persys.</p>
<table>{figures}</table>
<h2>Growth</h2>
<p>{growth}</p>
{plot}
</html>
"""


def bench(options: Namespace) -> int:
    progress = LineProgress()
    progress.step("measuring placement decisions")
    curve = figures.placement()
    measured = [figure for _, figure in curve.points]
    progress.step("measuring durable applies")
    measured.append(figures.applied())
    docker = docker_version()
    if docker is not None:
        progress.step("measuring containers")
        ensure_image(progress)
        measured.append(figures.container())
    facts = machine(docker)
    print(as_text(facts, measured))
    try:
        write_file(options.output, as_page(facts, measured, curve).encode(), mode=0o644)
    except OSError as err:
        raise SetupError(f"cannot write {options.output}: {err.strerror}") from err
    print(f"\nreport with plots: {options.output}")
    return ExitCode.OK


def machine(docker: str | None) -> list[tuple[str, str]]:
    """What the figures depend on."""
    load, _, _ = os.getloadavg()
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return [
        ("Persys", __version__),
        ("Processor", f"{os.cpu_count()} cores, {_processor()}"),
        ("Memory", f"{pages * page_bytes / 2**30:.1f} GiB"),
        ("Kernel", platform.release()),
        ("Python", platform.python_version()),
        ("Docker", docker or "not running: containers were not measured"),
        ("Load average", f"{load:.1f} at the end of the measurement"),
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def as_text(machine: Sequence[tuple[str, str]], figures: Sequence[Figure]) -> str:
    facts = align_columns([[f"{name}:", text] for name, text in machine])
    rows: list[tuple[str, ...]] = [("FIGURE", "TIME", "FLOOR", "TIME OF FLOOR", "RATIO")]
    rows += [_row(figure) for figure in figures]
    return f"{facts}\n\n{align_columns(rows)}"


def as_page(machine: Sequence[tuple[str, str]], figures: Sequence[Figure], curve: Curve) -> str:
    heads = ("Figure", "Time", "Floor", "Time of floor", "Ratio")
    growth = (
        f"A {curve.name} costs {curve.growth:.2f} times as much with {curve.points[-1][0]:,} nodes as "
        f"with {curve.points[0][0]:,}."
    )
    return _PAGE.format(
        machine="".join(_cells("td", fact) for fact in machine),
        figures=_cells("th", heads) + "".join(_cells("td", _row(figure)) for figure in figures),
        growth=growth,
        plot=plot(curve),
    )


def plot(curve: Curve) -> str:
    """Seconds by the number of nodes, both on logarithmic axes."""
    figures = {count: figure.seconds for count, figure in curve.points}
    floors = {count: figure.floor_seconds for count, figure in curve.points}
    times = [*figures.values(), *floors.values()]
    low, high = floor(log10(min(times))), floor(log10(max(times))) + 1
    left, right = log10(min(figures)), log10(max(figures))

    def x(count: float) -> float:
        share = (log10(count) - left) / ((right - left) or 1)
        return _MARGIN + share * (_WIDTH - 2 * _MARGIN)

    def y(seconds: float) -> float:
        share = (log10(seconds) - low) / (high - low)
        return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)

    parts = []
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(
            f'<path d="M{_MARGIN} {at:.1f}H{_WIDTH - _MARGIN}" stroke="#dddddd"/>'
            f'<text x="{_MARGIN - 8}" y="{at + 4:.1f}" text-anchor="end">{duration(10.0**power)}</text>'
        )
    for count in figures:
        parts.append(
            f'<text x="{x(count):.1f}" y="{_HEIGHT - _MARGIN + 20}" text-anchor="middle">{count:,}</text>'
        )
    lines = ((curve.name, "figure", figures), (f"floor: {curve.floor_name}", "floor", floors))
    for number, (name, kind, points) in enumerate(lines):
        path = " ".join(f"{x(count):.1f},{y(seconds):.1f}" for count, seconds in points.items())
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{_COLORS[kind]}" stroke-width="2"/>'
            f'<text x="{_MARGIN}" y="{20 + 18 * number}" fill="{_COLORS[kind]}">{escape(name)}</text>'
        )
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">nodes</text>')
    return f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts)}</svg>'


def duration(seconds: float) -> str:
    """Such as `3.2 ms`."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.9995:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        duration(figure.seconds),
        figure.floor_name,
        duration(figure.floor_seconds),
        f"{figure.ratio:.2f}",
    )


def _cells(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>\n"
