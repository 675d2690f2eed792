"""The table and the page of `persys bench`."""

from xml.etree import ElementTree as ET

import pytest

from persys.cli.benchmark.bench import as_page, as_text, duration, plot
from persys.cli.benchmark.figures import Curve, Figure

MACHINE = [("Processor", "2 cores, <fast> & new")]


def a_figure(seconds: float, floor_seconds: float = 1e-6) -> Figure:
    return Figure("placement", "a scan", seconds, floor_seconds)


def a_curve(*seconds: float) -> Curve:
    points = tuple((10 ** (1 + power), a_figure(each)) for power, each in enumerate(seconds))
    return Curve("placement", "a scan", points)


def heights(curve: Curve) -> list[float]:
    line = ET.fromstring(plot(curve)).find("polyline")
    assert line is not None
    return [float(point.split(",")[1]) for point in line.attrib["points"].split()]


def test_each_figure_is_shown_as_a_ratio_to_its_floor() -> None:
    text = as_text(MACHINE, [a_figure(0.003, 0.002)])

    assert text.splitlines()[-1].split("   ")[-1].strip() == "1.50"
    assert "3 ms" in text
    assert "2 ms" in text


def test_the_page_contains_the_machine_and_the_growth() -> None:
    page = as_page(MACHINE, [a_figure(1e-5)], a_curve(1e-5, 1.2e-5, 1.1e-5, 1.5e-5))

    assert "2 cores, &lt;fast&gt; &amp; new" in page
    assert "1.50 times as much with 10,000 nodes as with 10" in page


def test_equal_factors_are_equal_distances_in_the_plot() -> None:
    first, second, third, _ = heights(a_curve(1e-6, 1e-5, 1e-4, 1e-4))

    assert first - second == pytest.approx(second - third, abs=0.2)
    assert first > second > third


def test_a_flat_cost_is_a_flat_line() -> None:
    assert len(set(heights(a_curve(2e-5, 2e-5, 2e-5, 2e-5)))) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0032, "3.2 ms"), (1e-5, "10 µs"), (4e-8, "40 ns"), (0.9999, "1 s")],
)
def test_durations_have_a_readable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
