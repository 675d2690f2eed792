"""The result of a simulated year: as lines of text, and as a plot of demand, capacity and spend by day."""

from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 900, 420
_LEFT, _RIGHT = 60, 20
_FONT = 'font-family="sans-serif" font-size="12"'
_PANELS = ((30, 210), (260, 390))  # top and bottom of each
_COLORS = {"demand": "#1f77b4", "capacity": "#2ca02c", "spend": "#d62728"}


@dataclass(slots=True)
class YearReport:
    hours: int
    home_cores: float  # of the cluster without the pool
    spend_limit: float  # per hour
    jobs: int = 0
    done: int = 0
    work_minutes: int = 0
    lost_minutes: int = 0
    waits: list[int] = field(default_factory=list)  # minutes until each start
    spend: float = 0.0
    spend_peak: float = 0.0  # per hour
    created: int = 0
    crashes: int = 0
    left_over: int = 0  # instances without a record at the end
    demand_by_day: list[float] = field(default_factory=list)  # cores in use or waiting, mean
    cores_by_day: list[float] = field(default_factory=list)  # of the pool, mean
    spend_by_day: list[float] = field(default_factory=list)

    def wait_of(self, share: float) -> int:
        """The wait that this share of the jobs does not exceed."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0

    def lines(self) -> list[str]:
        mean = sum(self.waits) / max(1, len(self.waits))
        lost_share = 100 * self.lost_minutes / max(1, self.work_minutes)
        limit, always = self.spend_limit, self.spend_peak * self.hours
        within = f"95 % within {self.wait_of(0.95)} min, 99 % within {self.wait_of(0.99)} min"
        return [
            f"{self.hours} hours, {self.jobs} jobs, {self.done} done",
            f"machines created: {self.created}; crashes of the scheduler: {self.crashes}",
            f"spend: {self.spend:.2f}; {always:.2f} if the largest fleet ran all the time",
            f"spend per hour: at most {self.spend_peak:.2f}; the limit is {limit:.2f}",
            f"waiting: mean {mean:.1f} min, {within}, longest {max(self.waits, default=0)} min",
            f"lost work: {self.lost_minutes} of {self.work_minutes} minutes ({lost_share:.2f} %)",
            f"instances without a record at the end: {self.left_over}",
        ]


def plot(report: YearReport) -> str:
    capacity = [report.home_cores + cores for cores in report.cores_by_day]
    top = max([*report.demand_by_day, *capacity, 1.0])
    spend_top = max([*report.spend_by_day, 1.0])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {_FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_axes(_PANELS[0], top, "cores, daily mean", len(report.demand_by_day)),
        _line(capacity, top, _PANELS[0], _COLORS["capacity"]),
        _line(report.demand_by_day, top, _PANELS[0], _COLORS["demand"]),
        *_axes(_PANELS[1], spend_top, "spend of the node pool per day", len(report.spend_by_day)),
        _line(report.spend_by_day, spend_top, _PANELS[1], _COLORS["spend"]),
        _label("demand", 300, 20, _COLORS["demand"]),
        _label("capacity: cluster and node pool", 380, 20, _COLORS["capacity"]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _line(values: Sequence[float], top: float, panel: tuple[int, int], color: str) -> str:
    points = " ".join(
        f"{_across(at, len(values)):.1f},{_down(value, top, panel):.1f}"
        for at, value in enumerate(values)
    )
    return f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _axes(panel: tuple[int, int], top: float, title: str, count: int) -> list[str]:
    upper, lower = panel
    right = WIDTH - _RIGHT
    lines = [
        f'<path d="M{_LEFT} {upper}V{lower}H{right}" fill="none" stroke="#444"/>',
        _label(title, _LEFT, upper - 8, "#444"),
    ]
    for share in (0.0, 0.5, 1.0):
        at = _down(share * top, top, panel)
        lines.append(
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#444">{share * top:.0f}</text>'
        )
    for day in range(0, count + 1, max(1, count // 12)):
        at = _across(day, count)
        lines.append(
            f'<text x="{at:.1f}" y="{lower + 16}" text-anchor="middle" fill="#444">{day}</text>'
        )
    return lines


def _label(text: str, across: float, down: float, color: str) -> str:
    return f'<text x="{across}" y="{down}" fill="{color}">{text}</text>'


def _across(at: int, count: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * at / max(1, count - 1)


def _down(value: float, top: float, panel: tuple[int, int]) -> float:
    upper, lower = panel
    return lower - (lower - upper) * value / top
