from __future__ import annotations

import json

import pytest

from serve_app.load.spread import Spread, quantile


def test_a_quantile_is_interpolated_between_neighbours() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([10, 20], 0.9) == pytest.approx(19)


def test_the_ends_are_smallest_and_largest() -> None:
    assert quantile([3, 1, 2], 0) == 1
    assert quantile([3, 1, 2], 1) == 3
    assert quantile([7], 0.99) == 7


def test_no_values_have_no_quantile_and_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)
    assert Spread.of([]) is None


def test_a_spread_is_plain_json() -> None:
    spread = Spread.of([float(n) for n in range(101)])
    assert spread is not None
    assert json.loads(json.dumps(spread.as_json())) == {
        "n": 101,
        "p50": 50,
        "p90": 90,
        "p95": 95,
        "p99": 99,
        "p999": 99.9,
        "max": 100,
    }
