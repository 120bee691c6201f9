"""What steps cost, and what memory they have."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from support.jobs import make_job
from support.virtual_backend import VirtualState

from deployments.engine import scheduler
from deployments.engine.scheduler import MEMORY_PATIENCE, PATIENCE, MemoryLimit, StepCosts, TokenLimit


def pictures(*tokens: int, kind: str = "k") -> list[VirtualState]:
    return [VirtualState(make_job(str(n)), kind, 8, tokens=each) for n, each in enumerate(tokens)]


def learnt(costs: StepCosts, seconds: Callable[[Sequence[int]], float], waiting: Sequence[int], steps: int) -> int:
    """Takes `steps` steps of what should go together; the size of the last."""
    batch: list[VirtualState] = []
    for _ in range(steps):
        batch = costs.together(pictures(*waiting))
        costs.observe(batch, seconds([each.tokens for each in batch]))
    return len(batch)


def linear(fixed: float, per_token: float) -> Callable[[Sequence[int]], float]:
    return lambda tokens: fixed + per_token * sum(tokens)


def test_pictures_join_until_the_fixed_cost_is_a_small_share() -> None:
    assert learnt(StepCosts(max_batch=12), linear(0.009, 0.00003), [100] * 20, 50) == 12, "9 ms of 12: all pay"
    assert learnt(StepCosts(max_batch=12), linear(0.001, 0.0001), [100] * 20, 50) == 5, "1 ms of 51"
    assert learnt(StepCosts(max_batch=12), linear(0.0, 0.0012), [100] * 20, 50) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("fixed", "per_token", "size"), [(1.7e-3, 1.8e-5, 96), (3e-3, 4e-5, 144), (5e-4, 6e-5, 336)])
def test_jitter_costs_little(fixed: float, per_token: float, size: int, seed: int) -> None:
    """At most a twentieth of the best rate."""
    rng, exact = random.Random(seed), linear(fixed, per_token)
    costs = StepCosts(max_batch=8)
    learnt(costs, lambda tokens: exact(tokens) * rng.uniform(0.7, 1.3), [size] * 8, 400)
    rates = {count: count / exact([size] * count) for count in range(1, 9)}
    assert rates[len(costs.together(pictures(*[size] * 8)))] >= 0.95 * max(rates.values())


def test_a_goal_for_steps_bounds_the_batch_but_never_keeps_one_out() -> None:
    costs = StepCosts(max_batch=8, goal_s=0.0155)
    assert learnt(costs, linear(0.009, 0.00003), [100] * 8, 50) == 2
    assert len(costs.together(pictures(1000, 1000))) == 1


def test_who_is_too_large_for_what_is_left_is_passed_over() -> None:
    costs = StepCosts(max_batch=8, goal_s=0.0155)
    learnt(costs, linear(0.009, 0.00003), [100] * 8, 50)
    assert [each.tokens for each in costs.together(pictures(100, 900, 80))] == [100, 80]


def test_sizes_share_what_was_learnt_and_kinds_do_not() -> None:
    costs = StepCosts(max_batch=8)
    learnt(costs, linear(0.009, 0.00003), [100] * 8, 50)
    assert len(costs.together(pictures(*[300] * 8))) == 8
    assert len(costs.together(pictures(*[300] * 8, kind="other"))) == 1
    assert costs.alone(pictures(400, kind="other")[0]) is None
    assert costs.alone(pictures(400)[0]) == pytest.approx(0.021, rel=0.3)


def test_running_out_of_memory_halves_what_goes_together() -> None:
    costs = StepCosts(max_batch=8)
    learnt(costs, linear(0.009, 0.00003), [100] * 8, 50)
    costs.shrink(pictures(*[100] * 8))
    assert len(costs.together(pictures(*[100] * 8))) == 4
    costs.shrink(pictures(100))
    assert len(costs.together(pictures(*[100] * 8))) == 4, "no other batch would have helped that one"


def test_an_edge_of_memory_is_found_by_few_failures() -> None:
    limit, failures = TokenLimit(), 0
    for _ in range(100 * PATIENCE):
        tokens = int(min(limit.tokens, 2000))
        if tokens > 700:
            failures += 1
            limit.failed(tokens)
        else:
            limit.fitted(tokens)
    assert failures <= 6
    assert limit.tokens > 600


def test_memory_of_kinds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MAX_KEYS", 3)
    costs = StepCosts(max_batch=4)
    for kind in ("a", "b", "c", "a", "d"):
        costs.observe(pictures(100, kind=kind), 0.01)
    assert [kind for kind in "abcd" if costs.alone(pictures(100, kind=kind)[0]) is not None] == ["a", "c", "d"]


def test_bounds_that_allow_none_are_refused() -> None:
    for max_batch, goal_s in ((0, None), (1, 0.0)):
        with pytest.raises(ValueError, match="at least"):
            StepCosts(max_batch, goal_s=goal_s)


def test_another_replica_begins_with_what_was_learned() -> None:
    costs, seconds = StepCosts(max_batch=8), linear(0.009, 0.00003)
    learnt(costs, seconds, [100] * 8, 50)
    assert costs.learned() == {}, "too little to tell others"
    learnt(costs, seconds, [100] * 8, scheduler.WORTH_TELLING)
    other = StepCosts(max_batch=8, known=costs.learned())
    assert len(other.together(pictures(*[100] * 8))) == 8
    assert len(StepCosts(max_batch=8).together(pictures(*[100] * 8))) == 1
    assert other.learned() == {}, "what it measured itself"


def test_memory_halves_what_failed_and_grows_back_by_one() -> None:
    memory = MemoryLimit(8)
    memory.failed(6)
    assert memory.size == 3
    for _ in range(MEMORY_PATIENCE - 1):
        memory.fitted(3)
    memory.fitted(2)
    assert memory.size == 3, "a batch that was not full says nothing"
    memory.fitted(3)
    assert memory.size == 4
    memory.failed(3)
    assert memory.size == 1


def test_a_picture_that_does_not_fit_alone_says_nothing_about_batches() -> None:
    memory = MemoryLimit(8)
    for _ in range(3):
        memory.failed(1)
    assert memory.size == 8


def test_a_size_that_failed_twice_is_not_tried_again() -> None:
    memory = MemoryLimit(8)
    for _ in range(2):
        memory.failed(4)
        for _ in range(10 * MEMORY_PATIENCE):
            if memory.size == 4:
                break
            memory.fitted(memory.size)
    assert memory.size == 3


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        MemoryLimit(0)
