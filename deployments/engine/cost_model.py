"""The cost model of steps, fitted while they run: `a + b * tokens + c * squares` seconds.

`tokens` is the sum over the members of a batch, `squares` the sum of their squares, by which attention grows. One model
serves all sizes, so a size never seen has an estimate, and no single measurement decides about one.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, TypeAlias

import numpy as np

Measurement: TypeAlias = tuple[int, int, float]
"""Tokens, squares and seconds of a step."""

_WINDOW: Final = 64
"""Measurements kept of each size class; of these ..."""
_TRIM: Final = 8
"""... the highest and lowest eighth are ignored."""
_MAX_SIZE_CLASSES: Final = 128
"""Size classes remembered; the least recently used one is forgotten."""
_FIT_INTERVAL: Final = 32
"""Steps between two fits, which take a millisecond each, after ..."""
_FIRST_FITS: Final = 8
"""... the first steps, each followed by a fit."""
_MIN_MEASUREMENTS: Final = _FIT_INTERVAL + _TRIM
"""Measurements after which a size class has influenced the last fit enough to rely on it."""
_ROUNDS: Final = 6
"""Rounds of reweighting, which turn least squares into least absolute errors (Schlossmacher 1973): a step that was
delayed by something else has no more influence than any other."""
_MIN_STEP_S: Final = 1e-6
_MIN_ERROR: Final = 1e-3
"""Relative errors below this have equal weight."""
_RCOND: Final = 1e-6
_MODELS: Final = ((0, 1), (0, 1, 2), (0, 2), (1, 2), (0,), (1,), (2,))
"""Columns of the candidate models: fixed, per token, per square. Earlier ones win unless a later one is clearly
better, ..."""
_IMPROVEMENT: Final = 0.9
"""... that is, has less than this share of its error."""
_RECENT: Final = 31
"""Steps whose median shows that the machine became slower or faster."""
_MIN_DRIFT: Final = 0.1
"""Relative change of speed that is corrected; less may be chance."""
_RESTART_DRIFT: Final = 1.5
"""Factor of change of speed after which earlier measurements are dropped."""
_MIN_SPREAD: Final = 2
"""Largest by smallest number of tokens that separates fixed cost from cost per token."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of a step."""

    fixed: float
    per_token: float
    per_square: float

    def seconds(self, tokens: int, squares: int) -> float:
        return self.fixed + self.per_token * tokens + self.per_square * squares

    def times(self, factor: float) -> StepCost:
        return StepCost(self.fixed * factor, self.per_token * factor, self.per_square * factor)


class CostModel:
    """Cost model of the steps with one key."""

    def __init__(self, initial: StepCost | None = None) -> None:
        """`initial` was measured by another replica on such a device. It is used, scaled to this machine's speed, until
        there are enough measurements here."""
        self._initial = initial
        self.cost = initial
        """Present estimate; None before the first measurement, without an initial cost."""
        self._fitted: StepCost | None = None
        self._windows: OrderedDict[tuple[int, int], deque[Measurement]] = OrderedDict()
        self._recent: deque[Measurement] = deque(maxlen=_RECENT)
        self.steps = 0
        """Number of observed steps."""

    @property
    def separates_fixed(self) -> bool:
        """True when the fixed cost can be told from the cost per token."""
        return self._initial is not None or self._is_varied

    @property
    def measured(self) -> bool:
        """True when measurements made here replace the initial cost. Thread-safe."""
        return self._is_varied and self.steps >= _RECENT

    def min_seconds(self, tokens: int, squares: int) -> float | None:
        """Returns the seconds of a step at the fastest recent speed, or the usual speed if that is faster. None without
        enough measurements, either of this size class or of both steps as large and smaller ones. Below the smallest
        measured size the fixed cost is unknown and left out."""
        fitted = self._fitted
        reliable = {size: window[-1] for size, window in self._windows.items() if len(window) >= _MIN_MEASUREMENTS}
        is_measured = self.measured or _size_class(tokens, squares) in reliable
        if fitted is None or not (reliable and is_measured):
            return None
        if tokens > max(each for each, *_ in reliable.values()) or squares > max(
            each for _, each, _ in reliable.values()
        ):
            return None
        fastest = min(took / fitted.seconds(*amount) for *amount, took in self._recent)
        fixed = 0.0 if tokens < min(each for each, *_ in reliable.values()) else fitted.fixed
        return min(fastest, 1) * replace(fitted, fixed=fixed).seconds(tokens, squares)

    @property
    def _is_varied(self) -> bool:
        tokens = [window[-1][0] for window in list(self._windows.values())]
        return bool(tokens) and max(tokens) >= _MIN_SPREAD * min(tokens)

    def observe(self, tokens: int, squares: int, seconds: float) -> None:
        """Records the duration of a step, and fits the model now and then."""
        measurement = tokens, squares, max(seconds, _MIN_STEP_S)
        self._record(measurement)
        self._recent.append(measurement)
        self.steps += 1
        cost = self._fitted
        if cost is None or self.steps <= _FIRST_FITS or self.steps % _FIT_INTERVAL == 0:
            cost = self._fit_windows()
            if len(self._recent) == _RECENT and not 1 / _RESTART_DRIFT < self._drift(cost) < _RESTART_DRIFT:
                self._windows.clear()
                for recent in self._recent:
                    self._record(recent)
                cost = self._fit_windows()
        self._fitted, drift = cost, self._drift(cost)
        self.cost = cost.times(drift) if abs(drift - 1) > _MIN_DRIFT else cost

    def _fit_windows(self) -> StepCost:
        if self._initial is not None and not self.measured:
            return self._initial
        windows = self._windows.values()
        return fit([_trimmed_mean(window) for window in windows], [len(window) for window in windows])

    def _drift(self, cost: StepCost) -> float:
        """Returns the median ratio of recent durations to `cost`."""
        return median(seconds / cost.seconds(tokens, squares) for tokens, squares, seconds in self._recent)

    def _record(self, measurement: Measurement) -> None:
        size = _size_class(*measurement[:2])
        window = self._windows.pop(size, None) or deque(maxlen=_WINDOW)
        window.append(measurement)
        self._windows[size] = window
        if len(self._windows) > _MAX_SIZE_CLASSES:
            self._windows.popitem(last=False)


def fit(measured: Sequence[Measurement], counts: Sequence[int] | None = None) -> StepCost:
    """Returns the nonnegative cost with the least sum of relative errors. `counts` weights the measurements, of which
    there is at least one."""
    times = np.ones(len(measured)) if counts is None else np.array(counts, float)
    rows = np.array([(1.0, tokens, squares) for tokens, squares, _ in measured])
    scale = rows.max(axis=0)
    rows = rows / scale / np.array([seconds for *_, seconds in measured])[:, None]
    best, min_error = np.zeros(3), math.inf
    for columns in _MODELS:
        factors = _least_absolute(rows[:, columns], times)
        error = float(times @ np.abs(rows[:, columns] @ factors - 1))
        if (factors >= 0).all() and error < _IMPROVEMENT * min_error - _MIN_ERROR:
            best, min_error = np.zeros(3), error
            best[list(columns)] = factors
    fixed, per_token, per_square = best / scale
    return StepCost(float(fixed), float(per_token), float(per_square))


def _least_absolute(rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Returns the factors of the columns that bring every row, weighted by `times`, closest to 1."""
    weights = np.sqrt(times)
    factors = np.zeros(rows.shape[1])
    for _ in range(_ROUNDS):
        weighted = rows * weights[:, None]
        factors = np.linalg.lstsq(weighted, weights, rcond=_RCOND)[0]
        weights = np.sqrt(times / np.maximum(np.abs(rows @ factors - 1), _MIN_ERROR))
    return factors


def _trimmed_mean(measured: Sequence[Measurement]) -> Measurement:
    """Returns the mean without the outliers by cost per token, so that a hiccup has no influence."""
    ordered = sorted(measured, key=lambda each: each[2] / each[0])
    trim = len(ordered) // _TRIM
    middle = np.array(ordered[trim : len(ordered) - trim]).mean(axis=0)
    return int(middle[0]), int(middle[1]), float(middle[2])


def _size_class(tokens: int, squares: int) -> tuple[int, int]:
    """Returns equal classes for amounts within a fifth of each other."""
    tokens_class, mean_class = (round(4 * math.log2(max(amount, 1))) for amount in (tokens, squares / tokens))
    return tokens_class, mean_class
