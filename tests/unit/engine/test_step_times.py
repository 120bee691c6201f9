from __future__ import annotations

from collections.abc import Callable

import pytest

from deployments.engine import step_times
from deployments.engine.step_times import StepTimes


def run(table: StepTimes, seconds: Callable[[int], float], steps: int, key: str = "k") -> list[int]:
    """Takes `steps` full batches; the sizes taken, without repetition."""
    sizes: list[int] = []
    for _ in range(steps):
        batch = table.limit(key)
        table.observe(key, batch, seconds(batch))
        if not sizes or sizes[-1] != batch:
            sizes.append(batch)
    return sizes


def test_limit_doubles_while_batching_pays() -> None:
    table = StepTimes(max_batch=12)
    assert run(table, lambda batch: 0.009 + 0.003 * batch, 50) == [1, 2, 4, 8, 12]


def test_limit_stays_at_one_where_a_batch_brings_nothing() -> None:
    table = StepTimes(max_batch=8)
    assert run(table, lambda batch: 0.12 * batch, 50) == [1, 2, 1]


def test_limit_returns_to_the_last_size_that_paid() -> None:
    # Pays to 4, and turns at 8.
    seconds = {1: 0.010, 2: 0.015, 4: 0.025, 8: 0.060}
    table = StepTimes(max_batch=8)
    assert run(table, seconds.__getitem__, 100) == [1, 2, 4, 8, 4]


def test_less_than_one_per_cent_is_no_gain() -> None:
    table = StepTimes(max_batch=8)
    assert run(table, lambda batch: batch * (0.01 if batch == 1 else 0.00995), 50) == [1, 2, 1]


def test_one_slow_call_decides_nothing() -> None:
    table = StepTimes(max_batch=2)
    warmed = False

    def seconds(batch: int) -> float:
        nonlocal warmed
        if batch == 2 and not warmed:
            warmed = True
            return 12.0
        return 0.010 + 0.001 * batch

    run(table, seconds, 20)
    assert table.limit("k") == 2


def test_a_rejected_size_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "PATIENCE", 20)
    table = StepTimes(max_batch=4)
    run(table, lambda batch: 0.01 * batch, 10)
    assert table.limit("k") == 1
    # The machine is less busy now: batching pays after all, and growth goes on by single steps.
    assert run(table, lambda batch: 0.009 + 0.001 * batch, 100) == [1, 2, 3, 4]


def test_keys_learn_apart() -> None:
    table = StepTimes(max_batch=8)
    run(table, lambda batch: 0.01, 50, key="small")
    assert (table.limit("small"), table.limit("large")) == (8, 1)
    table.shrink("small", 8)
    assert table.limit("small") == 4


def test_predict_measured_and_estimated_from_above() -> None:
    table = StepTimes(max_batch=8)
    assert table.predict("k", 1) is None
    table.observe("k", 2, 0.020)
    table.observe("k", 4, 0.032)
    assert table.predict("k", 2) == pytest.approx(0.020)
    assert table.predict("k", 1) == pytest.approx(0.020)
    assert table.predict("k", 3) == pytest.approx(0.030)
    assert table.predict("k", 8) == pytest.approx(0.064)


def test_predict_follows_a_machine_that_became_slower() -> None:
    table = StepTimes(max_batch=1)
    for seconds in [0.01] * 10 + [0.02] * step_times.WINDOW:
        table.observe("k", 1, seconds)
    assert table.predict("k", 1) == pytest.approx(0.02)


def test_memory_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "MAX_KEYS", 3)
    table = StepTimes(max_batch=4)
    for key in ("a", "b", "c", "a", "d"):
        table.observe(key, 1, 0.01)
    assert [key for key in "abcd" if table.predict(key, 1) is not None] == ["a", "c", "d"]


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        StepTimes(0)
