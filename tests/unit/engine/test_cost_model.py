from __future__ import annotations

import random

import pytest

from deployments.engine.cost_model import CostModel, StepCost, fit

TRUE = StepCost(fixed=0.0017, per_token=1.2e-5, per_square=2e-9)
SIZES = (96, 144, 352, 700)


def random_batch(rng: random.Random) -> tuple[int, int]:
    tokens = [rng.choice(SIZES) for _ in range(rng.randint(1, 8))]
    return sum(tokens), sum(each * each for each in tokens)


@pytest.mark.parametrize("seed", range(2))
def test_outliers_hardly_change_predictions(seed: int) -> None:
    rng, model = random.Random(seed), CostModel()
    for _ in range(600):
        tokens, squares = random_batch(rng)
        noise = rng.uniform(0.7, 1.3) * (20 if rng.random() < 0.03 else 1)
        model.observe(tokens, squares, TRUE.seconds(tokens, squares) * noise)
    assert model.cost is not None
    for size in SIZES:
        for count in (1, 4, 8):
            expected = TRUE.seconds(count * size, count * size**2)
            assert model.cost.seconds(count * size, count * size**2) == pytest.approx(expected, rel=0.15)


def test_fitted_costs_are_never_negative() -> None:
    cost = fit([(100, 10_000, 0.004), (200, 20_000, 0.003), (400, 40_000, 0.002)])
    assert min(cost.fixed, cost.per_token, cost.per_square) >= 0


def test_one_measurement_gives_a_first_estimate() -> None:
    model = CostModel()
    assert model.cost is None
    model.observe(100, 10_000, 0.01)
    assert model.cost is not None
    assert model.cost.seconds(100, 10_000) == pytest.approx(0.01)
    assert 0.01 < model.cost.seconds(400, 40_000) < 0.04, "a part can be fixed"


def test_costs_follow_a_slower_machine() -> None:
    model, rng = CostModel(), random.Random(2)
    for factor in (1, 3):
        for _ in range(400):
            tokens, squares = random_batch(rng)
            model.observe(tokens, squares, factor * TRUE.seconds(tokens, squares))
    assert model.cost is not None
    assert model.cost.seconds(352, 352**2) == pytest.approx(3 * TRUE.seconds(352, 352**2), rel=0.15)


def test_initial_costs_hold_until_steps_are_measured() -> None:
    model, slower = CostModel(TRUE), 1.4
    assert model.cost == TRUE
    assert model.separates_fixed
    for _ in range(100):
        model.observe(352, 352**2, slower * TRUE.seconds(352, 352**2))
    assert not model.measured
    assert model.cost is not None
    assert model.cost.seconds(700, 2 * 352**2) == pytest.approx(slower * TRUE.seconds(700, 2 * 352**2), rel=1e-3)
    other = StepCost(fixed=0.01, per_token=1e-6, per_square=0.0)
    rng = random.Random(3)
    for _ in range(200):
        tokens, squares = random_batch(rng)
        model.observe(tokens, squares, other.seconds(tokens, squares))
    assert model.measured
    assert model.cost.seconds(144, 144**2) == pytest.approx(other.seconds(144, 144**2), rel=0.1)


def test_minimum_is_known_for_often_measured_steps() -> None:
    model, exact = CostModel(), StepCost(0.01, 1e-5, 0.0)
    for _ in range(64):
        for tokens in (1000, 4000):
            model.observe(tokens, tokens * 1000, exact.seconds(tokens, 0))
    assert model.min_seconds(2000, 2_000_000) == pytest.approx(0.03)
    assert model.min_seconds(100, 100_000) == pytest.approx(0.001), "the fixed part is a guess there"
    assert model.min_seconds(8000, 2_000_000) is None
    assert model.min_seconds(2000, 5_000_000) is None, "so many squares were never measured"
    model.observe(2000, 2_000_000, 0.015)
    assert model.min_seconds(2000, 2_000_000) == pytest.approx(0.015)
    assert CostModel(exact).min_seconds(1000, 1_000_000) is None, "costs from another machine are no minimum"


def test_minimum_is_unknown_for_unmeasured_sizes() -> None:
    model = CostModel()
    for _ in range(64):
        model.observe(5000, 25_000_000, 9.0)
    assert model.min_seconds(5000, 25_000_000) == pytest.approx(9.0)
    assert model.min_seconds(1000, 1_000_000) is None
