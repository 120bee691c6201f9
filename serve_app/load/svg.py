"""Plots as SVG, to stand in a page: their colours are the page's, by classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, TypeAlias

Point: TypeAlias = tuple[float, float]

_WIDTH: Final = 640
_HEIGHT: Final = 300
_LEFT: Final = 56
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 42
_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    low: float
    high: float
    log: bool = False

    @classmethod
    def over(cls, label: str, values: Iterable[float], *, log: bool = False, least: float | None = None) -> Axis:
        """Holds all values. A logarithmic one leaves out what is not positive."""
        known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low = min(known, default=0.1 if log else 0.0) if least is None else least
        high = max(known, default=1.0)
        if log:
            low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        if high <= low:
            high = low * 10 if log else low + 1
        return cls(label, low, high, log)

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high one; those beyond lie at the ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        rough = (self.high - self.low) / _TICKS
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(slots=True)
class Plot:
    """`css` of what is drawn is a class: `s1` to `s6` for series, `good`, `late`, `bad` for outcomes, `level`."""

    title: str
    x: Axis
    y: Axis
    _drawn: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)

    def line(self, points: Sequence[Point], css: str, label: str, *, steps: bool = False, marks: bool = False) -> None:
        """From point to point; as `steps`, level up to the next one."""
        if not points:
            return
        places = [self._place(point) for point in points]
        path = f"M{_at(places[0])}"
        for x, y in places[1:]:
            path += f"H{x:.1f}V{y:.1f}" if steps else f"L{_at((x, y))}"
        self._drawn.append(f'<path class="line {css}" d="{path}"/>')
        if marks:
            self.dots(points, css, "", radius=3.5)
        self._legend.append((css, label))

    def dots(self, points: Sequence[Point], css: str, label: str, *, radius: float = 1.8) -> None:
        if not points:
            return
        self._drawn += [
            f'<circle class="dot {css}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in map(self._place, points)
        ]
        if label:
            self._legend.append((css, label))

    def across(self, value: float, label: str) -> None:
        """A level line at a value of y."""
        _, y = self._place((self.x.low, value))
        self._drawn.append(f'<path class="level" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        self._drawn.append(f'<text class="note" x="{_WIDTH - _RIGHT - 4}" y="{y - 4:.1f}">{escape(label)}</text>')

    def upright(self, value: float, label: str) -> None:
        """A line at a value of x."""
        x, _ = self._place((value, self.y.low))
        self._drawn.append(f'<path class="level" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
        self._drawn.append(f'<text class="note" x="{x - 4:.1f}" y="{_TOP + 10}">{escape(label)}</text>')

    def svg(self) -> str:
        legend = "".join(f'<span class="{css}"><i></i>{escape(label)}</span>' for css, label in self._legend)
        return (
            f"<figure><figcaption>{escape(self.title)}</figcaption>"
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(self.title, quote=True)}">'
            f"{self._frame()}{''.join(self._drawn)}</svg>"
            f'<p class="legend">{legend}</p></figure>'
        )

    def _frame(self) -> str:
        parts: list[str] = []
        for value in self.x.ticks():
            x, _ = self._place((value, self.y.low))
            parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
            parts.append(f'<text class="tick mid" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 15}">{value:g}</text>')
        for value in self.y.ticks():
            _, y = self._place((self.x.low, value))
            parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
            parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4:.1f}">{value:g}</text>')
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        parts.append(
            f'<text class="label mid" x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}">{escape(self.x.label)}</text>'
        )
        parts.append(
            f'<text class="label mid" transform="translate(13 {middle}) rotate(-90)">{escape(self.y.label)}</text>'
        )
        return "".join(parts)

    def _place(self, point: Point) -> Point:
        x, y = point
        return (
            _LEFT + self.x.share(x) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - self.y.share(y) * (_HEIGHT - _TOP - _BOTTOM),
        )


def _at(place: Point) -> str:
    return f"{place[0]:.1f} {place[1]:.1f}"
