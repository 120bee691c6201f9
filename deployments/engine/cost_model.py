"""The cost model of steps, fitted while they run: `a + b * tokens + c * squares` seconds.

`tokens` are those of all members of the batch, `squares` the sum of each one's squared, which attention goes by. One
model holds for all sizes, so a shape that was never seen has a price, and no unlucky measurement decides about one.
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
"""Measurements of steps of about one cost, ..."""
_TRIM: Final = 8
"""... of which the highest and lowest eighth don't count."""
_SORTS: Final = 128
"""Of steps that are remembered; past that the one unused for longest is forgotten."""
_FIT_EVERY: Final = 32
"""Steps between two fits, a millisecond each, once there are ..."""
_FIT_EACH: Final = 8
"""... so many; after each of the first."""
_OFTEN: Final = _FIT_EVERY + _TRIM
"""Measurements of about one cost of which the last fit has seen more than a few."""
_ROUNDS: Final = 6
"""Of reweighting, which turn least squares into least absolute errors (Schlossmacher 1973): a step that was held up by
something else counts no more than any other."""
_SHORTEST_S: Final = 1e-6
_EXACT: Final = 1e-3
"""Relative errors below this count alike."""
_RANK: Final = 1e-6
_PARTS: Final = ((0, 1), (0, 1, 2), (0, 2), (1, 2), (0,), (1,), (2,))
"""Columns of a model: fixed, per token, per square. What comes first is believed unless another is clearly better."""
_BETTER: Final = 0.9
_RECENT: Final = 31
"""Steps by whose median it is seen that the machine became slower or faster, ..."""
_DRIFT: Final = 0.1
"""... by more than this share: less may be chance."""
_CHANGED: Final = 1.5
"""So many times slower or faster it is as another machine."""
_SPAN: Final = 2
"""How many times the smallest step's tokens the largest must have had."""


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
    """Of steps of one kind."""

    def __init__(self, initial: StepCost | None = None) -> None:
        """`initial` was learned elsewhere, by the like of this machine: it holds, but for how fast this one is, until
        enough was measured here."""
        self._initial = initial
        self._cost = initial
        self._fitted: StepCost | None = None
        self._measured: OrderedDict[tuple[int, int], deque[Measurement]] = OrderedDict()
        self._recent: deque[Measurement] = deque(maxlen=_RECENT)
        self._steps = 0

    @property
    def cost(self) -> StepCost | None:
        """None as long as nothing is known."""
        return self._cost

    @property
    def steps(self) -> int:
        """Observed so far."""
        return self._steps

    @property
    def telling(self) -> bool:
        """Whether what is fixed can be told from what grows."""
        return self._initial is not None or self._varied

    @property
    def measured(self) -> bool:
        """Whether steps measured here tell more than what was learned elsewhere. From any thread."""
        return self._varied and self._steps >= _RECENT

    def min_seconds(self, tokens: int, squares: int) -> float | None:
        """Seconds of a step at the fastest pace of late, or the usual one if that is faster. None unless enough was
        measured here: of the like of it, or of steps as large and of others. Without any as small nothing is known of
        what is fixed."""
        fitted = self._fitted
        often = {sort: window[-1] for sort, window in self._measured.items() if len(window) >= _OFTEN}
        measured = self.measured or (_sort(tokens), _sort(squares / tokens)) in often
        if fitted is None or not (often and measured):
            return None
        if tokens > max(each for each, *_ in often.values()) or squares > max(each for _, each, _ in often.values()):
            return None
        fastest = min(took / fitted.seconds(*amount) for *amount, took in self._recent)
        fixed = 0.0 if tokens < min(each for each, *_ in often.values()) else fitted.fixed
        return min(fastest, 1) * replace(fitted, fixed=fixed).seconds(tokens, squares)

    @property
    def _varied(self) -> bool:
        tokens = [window[-1][0] for window in list(self._measured.values())]
        return bool(tokens) and max(tokens) >= _SPAN * min(tokens)

    def observe(self, tokens: int, squares: int, seconds: float) -> None:
        """A step took so long."""
        measurement = tokens, squares, max(seconds, _SHORTEST_S)
        self._keep(measurement)
        self._recent.append(measurement)
        self._steps += 1
        cost = self._fitted
        if cost is None or self._steps <= _FIT_EACH or self._steps % _FIT_EVERY == 0:
            cost = self._fit_measured()
            if len(self._recent) == _RECENT and not 1 / _CHANGED < self._drift(cost) < _CHANGED:
                self._measured.clear()  # what was measured before is of another machine, as it were
                for recent in self._recent:
                    self._keep(recent)
                cost = self._fit_measured()
        self._fitted, drift = cost, self._drift(cost)
        self._cost = cost.times(drift) if abs(drift - 1) > _DRIFT else cost

    def _fit_measured(self) -> StepCost:
        if self._initial is not None and not self.measured:
            return self._initial
        sorts = self._measured.values()
        return fit([_typical(window) for window in sorts], [len(window) for window in sorts])

    def _drift(self, cost: StepCost) -> float:
        """How many times longer than `cost` says recent steps took."""
        return median(seconds / cost.seconds(tokens, squares) for tokens, squares, seconds in self._recent)

    def _keep(self, measurement: Measurement) -> None:
        tokens, squares, _ = measurement
        sort = _sort(tokens), _sort(squares / tokens)
        window = self._measured.pop(sort, None) or deque(maxlen=_WINDOW)
        window.append(measurement)
        self._measured[sort] = window
        if len(self._measured) > _SORTS:
            self._measured.popitem(last=False)


def fit(measured: Sequence[Measurement], counts: Sequence[int] | None = None) -> StepCost:
    """The cost with the least relative errors, none of its parts negative, of one measurement or more, each of which
    counts so many times."""
    times = np.ones(len(measured)) if counts is None else np.array(counts, float)
    rows = np.array([(1.0, tokens, squares) for tokens, squares, _ in measured])
    scale = rows.max(axis=0)
    rows = rows / scale / np.array([seconds for *_, seconds in measured])[:, None]
    best, least = np.zeros(3), math.inf
    for parts in _PARTS:
        factors = _least_absolute(rows[:, parts], times)
        error = float(times @ np.abs(rows[:, parts] @ factors - 1))
        if (factors >= 0).all() and error < _BETTER * least - _EXACT:
            best, least = np.zeros(3), error
            best[list(parts)] = factors
    fixed, per_token, per_square = best / scale
    return StepCost(float(fixed), float(per_token), float(per_square))


def _least_absolute(rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Factors of the columns with which every row, counted so many times, comes as near to 1 as possible."""
    weights = np.sqrt(times)
    factors = np.zeros(rows.shape[1])
    for _ in range(_ROUNDS):
        weighted = rows * weights[:, None]
        factors = np.linalg.lstsq(weighted, weights, rcond=_RANK)[0]
        weights = np.sqrt(times / np.maximum(np.abs(rows @ factors - 1), _EXACT))
    return factors


def _typical(measured: Sequence[Measurement]) -> Measurement:
    """Of steps of about one cost: the mean of the middle, by cost per token, so that a hiccup decides nothing."""
    ordered = sorted(measured, key=lambda one: one[2] / one[0])
    trim = len(ordered) // _TRIM
    middle = np.array(ordered[trim : len(ordered) - trim]).mean(axis=0)
    return int(middle[0]), int(middle[1]), float(middle[2])


def _sort(amount: float) -> int:
    """Amounts within a fifth of each other are about the same."""
    return round(4 * math.log2(max(amount, 1)))
