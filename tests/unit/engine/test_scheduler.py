from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from support.jobs import make_job
from support.virtual_backend import VirtualState

from deployments.contract.job import GenerationJob
from deployments.engine.previews import passes_share
from deployments.engine.scheduler import (
    POLICY,
    BatchPolicy,
    MemoryLimit,
    StepCosts,
    TokenLimit,
    admit,
    infeasible_s,
    select_batch,
)


@dataclass(eq=False)
class Image:
    state: VirtualState
    submitted_at: float


@dataclass(frozen=True)
class WaitingJob:
    job: GenerationJob
    fetched: bool = True


def image(name: str, key: str, steps: int, *, submitted: float = 0.0, done: int = 0) -> Image:
    return Image(VirtualState(make_job(name, steps=steps), key, steps, done), submitted)


def join_ids(images: list[Image]) -> str:
    return "".join(one.state.job.id for one in images)


def make_costs(limit: int = 1, **seconds_per_step: float) -> StepCosts:
    """Returns costs by key, the same for every batch of up to `limit`."""
    costs = StepCosts(limit)
    for key, seconds in seconds_per_step.items():
        for count in (1, 2, 4):
            costs.observe([image("x", key, 1).state] * count, seconds)
    return costs


def test_short_work_is_batched_first() -> None:
    running = [image("a", "large", 8), image("b", "small", 8), image("c", "large", 1)]
    assert join_ids(select_batch(running, 0.0, make_costs(large=1.0, small=0.1))) == "b"
    assert join_ids(select_batch(running, 0.0, make_costs(large=1.0, small=0.2))) == "c"
    remaining = [image("a", "k", 4), image("b", "k", 50, done=48)]
    assert join_ids(select_batch(remaining, 0.0, make_costs(k=0.1))) == "b", "only remaining steps count"
    waited = [image("a", "k", 8, submitted=0.0), image("b", "k", 6, submitted=4.0)]
    assert join_ids(select_batch(waited, 4.0, make_costs(k=1.0))) == "a", "waiting must raise the rank"


def test_batch_has_one_key_and_at_most_the_limit() -> None:
    running = [image(name, key, 4) for name, key in zip("abcdef", "kmkkmk", strict=True)]
    assert join_ids(select_batch(running, 0.0, make_costs(limit=2, k=0.1, m=0.2))) == "ac"
    assert join_ids(select_batch(running, 0.0, make_costs(limit=8, k=0.1, m=0.2))) == "acdf"


def test_unknown_key_is_tried_with_one_image() -> None:
    running = [image("a", "k", 4), image("b", "new", 50), image("c", "new", 50)]
    assert join_ids(select_batch(running, 0.0, make_costs(limit=4, k=0.1))) == "b"


def test_overdue_images_go_first_by_arrival() -> None:
    times = make_costs(long=1.0, short=0.01)
    running = [
        image("a", "long", 10, submitted=0.0),
        image("b", "long", 10, submitted=1.0),
        image("c", "short", 1, submitted=10 * POLICY.overdue_factor),
    ]
    assert join_ids(select_batch(running, 10 * POLICY.overdue_factor - 0.1, times)) == "c"
    assert join_ids(select_batch(running, 10 * POLICY.overdue_factor + 0.1, times)) == "a"


def test_order_oldest_takes_the_oldest_first() -> None:
    running = [image("a", "k", 1, submitted=2.0), image("b", "k", 50, submitted=1.0, done=1)]
    assert join_ids(select_batch(running, 3.0, make_costs(limit=2, k=1.0), "oldest")) == "ba"
    assert join_ids(select_batch(running, 3.0, make_costs(limit=2, k=1.0), "aged")) == "ab"


def test_order_deadline_takes_the_earliest_deadline_first() -> None:
    times = make_costs(limit=3, k=1.0)
    soon, later = image("s", "k", 4, submitted=10.0), image("l", "k", 10, submitted=0.0)
    assert join_ids(select_batch([later, soon], 10.0, times, "deadline")) == "sl", "due at 30 and at 50"
    missed = image("m", "k", 4, submitted=0.0)
    assert join_ids(select_batch([missed, later, soon], 18.0, times, "deadline")) == "slm", "4 s of work, due in 2"
    assert join_ids(select_batch([missed, later, soon], 33.0, times, "deadline")) == "mls", (
        "8 times its 4 s have passed"
    )


def test_admission_is_first_in_first_out() -> None:
    waiting = [WaitingJob(make_job(name)) for name in "abcd"]
    assert admit(waiting, [make_job("x")], capacity=2) == waiting[:2]
    assert admit(waiting, [], capacity=9) == waiting
    assert admit(waiting, [], capacity=0) == []
    fetching = [WaitingJob(make_job(name), fetched=name in "bd") for name in "abcd"]
    assert admit(fetching, [], capacity=2) == [fetching[1], fetching[3]], "a job that is still fetched is skipped"


def test_exclusive_job_is_admitted_alone_and_in_order() -> None:
    first, alone, last = (WaitingJob(make_job(name, exclusive=name == "b")) for name in "abc")
    assert admit([first, alone, last], [], capacity=8) == [first]
    assert admit([alone, last], [first.job], capacity=8) == []
    assert admit([alone, last], [], capacity=8) == [alone]
    assert admit([last], [alone.job], capacity=8) == []
    assert admit([WaitingJob(alone.job, fetched=False), last], [], capacity=8) == []


class _Measured(StepCosts):
    """Costs with a given estimate and minimum of a step."""

    def __init__(self, alone: float | None, at_least: float | None) -> None:
        super().__init__(1)
        self._sorted = alone, at_least

    def solo_step_s(self, member: object) -> float | None:
        return self._sorted[0]

    def min_step_s(self, member: object) -> float | None:
        return self._sorted[1]


@pytest.mark.parametrize(
    ("alone", "at_least", "needed"),
    [(None, None, None), (100.0, None, None), (100.0, 1.4, None), (100.0, 1.6, 16.0), (0.9, 1.6, None)],
    ids=["nothing is known", "a first guess", "may be an error", "surely", "would do as steps are now"],
)
def test_image_is_ended_only_if_certainly_too_long(
    alone: float | None, at_least: float | None, needed: float | None
) -> None:
    state = VirtualState(make_job("a"), "k", 12, 2)  # ten steps in ten seconds
    assert infeasible_s(state, 10.0, _Measured(alone, at_least)) == needed


@pytest.mark.parametrize(
    ("total", "every", "expected"),
    [(4, 0.25, [1, 2, 3]), (10, 0.1, list(range(1, 10))), (8, 0.5, [4]), (3, 0.5, [2]), (1, 0.1, []), (5, 1.0, [])],
)
def test_previews_are_spread_over_the_steps(total: int, every: float, expected: list[int]) -> None:
    assert [done for done in range(1, total + 1) if passes_share(done, total, every, done - 1)] == expected


def test_skipped_preview_is_due_at_the_next_step() -> None:
    assert [passes_share(done, 8, 0.5, last=0) for done in range(1, 9)] == [*[False] * 3, *[True] * 4, False]
    assert not passes_share(7, 8, 0.5, last=4)


def images(*tokens: int, kind: str = "k") -> list[VirtualState]:
    return [VirtualState(make_job(str(n)), kind, 8, tokens=each) for n, each in enumerate(tokens)]


def train(costs: StepCosts, seconds: Callable[[Sequence[int]], float], waiting: Sequence[int], steps: int) -> int:
    """Runs `steps` steps of the selected batches. Returns the size of the last."""
    batch: list[VirtualState] = []
    for _ in range(steps):
        batch = costs.choose_batch(images(*waiting))
        costs.observe(batch, seconds([each.tokens for each in batch]))
    return len(batch)


def linear(fixed: float, per_token: float) -> Callable[[Sequence[int]], float]:
    return lambda tokens: fixed + per_token * sum(tokens)


def test_batch_grows_until_the_fixed_cost_is_small() -> None:
    assert train(StepCosts(max_batch=12), linear(0.009, 0.00003), [100] * 20, 50) == 12, "9 ms of 12 are fixed"
    assert train(StepCosts(max_batch=12), linear(0.001, 0.0001), [100] * 20, 50) == 5, "1 ms of 51 is fixed"
    assert train(StepCosts(max_batch=12), linear(0.0, 0.0012), [100] * 20, 50) == 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("fixed", "per_token", "size"), [(1.7e-3, 1.8e-5, 96), (3e-3, 4e-5, 144), (5e-4, 6e-5, 336)])
def test_jitter_costs_at_most_a_twentieth(fixed: float, per_token: float, size: int, seed: int) -> None:
    rng, exact = random.Random(seed), linear(fixed, per_token)
    costs = StepCosts(max_batch=8)
    train(costs, lambda tokens: exact(tokens) * rng.uniform(0.7, 1.3), [size] * 8, 400)
    rates = {count: count / exact([size] * count) for count in range(1, 9)}
    assert rates[len(costs.choose_batch(images(*[size] * 8)))] >= 0.95 * max(rates.values())


def test_step_goal_bounds_the_batch() -> None:
    costs = StepCosts(max_batch=8, goal_s=0.0155)
    assert train(costs, linear(0.009, 0.00003), [100] * 8, 50) == 2
    assert len(costs.choose_batch(images(1000, 1000))) == 1


def test_image_too_large_for_the_batch_is_skipped() -> None:
    costs = StepCosts(max_batch=8, goal_s=0.0155)
    train(costs, linear(0.009, 0.00003), [100] * 8, 50)
    assert [each.tokens for each in costs.choose_batch(images(100, 900, 80))] == [100, 80]


def test_sizes_share_costs_and_kinds_do_not() -> None:
    costs = StepCosts(max_batch=8)
    train(costs, linear(0.009, 0.00003), [100] * 8, 50)
    assert len(costs.choose_batch(images(*[300] * 8))) == 8
    assert len(costs.choose_batch(images(*[300] * 8, kind="other"))) == 1
    assert costs.solo_step_s(images(400, kind="other")[0]) is None
    assert costs.solo_step_s(images(400)[0]) == pytest.approx(0.021, rel=0.3)


def test_out_of_memory_halves_the_batch() -> None:
    costs = StepCosts(max_batch=8)
    train(costs, linear(0.009, 0.00003), [100] * 8, 50)
    costs.shrink(images(*[100] * 8))
    assert len(costs.choose_batch(images(*[100] * 8))) == 4
    costs.shrink(images(100))
    assert len(costs.choose_batch(images(*[100] * 8))) == 4, "a single image says nothing about batches"


def test_token_limit_is_found_with_few_failures() -> None:
    limit, failures = TokenLimit(), 0
    for _ in range(100 * POLICY.memory_patience):
        tokens = int(min(limit.tokens, 2000))
        if tokens > 700:
            failures += 1
            limit.record_failure(tokens)
        else:
            limit.record_success(tokens)
    assert failures <= 6
    assert limit.tokens > 600


def test_memory_of_step_keys_is_bounded() -> None:
    costs = StepCosts(max_batch=4, policy=BatchPolicy(max_step_keys=3))
    for kind in ("a", "b", "c", "a", "d"):
        costs.observe(images(100, kind=kind), 0.01)
    assert [kind for kind in "abcd" if costs.solo_step_s(images(100, kind=kind)[0]) is not None] == ["a", "c", "d"]


def test_learned_costs_initialize_another_replica() -> None:
    costs, seconds = StepCosts(max_batch=8), linear(0.009, 0.00003)
    train(costs, seconds, [100] * 8, 50)
    assert costs.learned() == {}, "too few measurements"
    train(costs, seconds, [100] * 8, POLICY.min_learned_steps)
    other = StepCosts(max_batch=8, initial=costs.learned())
    assert len(other.choose_batch(images(*[100] * 8))) == 8
    assert len(StepCosts(max_batch=8).choose_batch(images(*[100] * 8))) == 1
    assert other.learned() == {}, "it measured nothing itself"


def test_memory_limit_halves_and_grows_by_one() -> None:
    memory = MemoryLimit(8)
    memory.record_failure(6)
    assert memory.size == 3
    for _ in range(POLICY.memory_patience - 1):
        memory.record_success(3)
    memory.record_success(2)
    assert memory.size == 3, "a smaller batch says nothing about the limit"
    memory.record_success(3)
    assert memory.size == 4
    memory.record_failure(3)
    assert memory.size == 1


def test_failure_of_one_image_keeps_the_memory_limit() -> None:
    memory = MemoryLimit(8)
    for _ in range(3):
        memory.record_failure(1)
    assert memory.size == 8


def test_size_that_failed_twice_is_not_tried_again() -> None:
    memory = MemoryLimit(8)
    for _ in range(2):
        memory.record_failure(4)
        for _ in range(10 * POLICY.memory_patience):
            if memory.size == 4:
                break
            memory.record_success(memory.size)
    assert memory.size == 3


def test_bounds_below_one_are_rejected() -> None:
    for refused in (lambda: StepCosts(0), lambda: StepCosts(1, goal_s=0.0), lambda: MemoryLimit(0)):
        with pytest.raises(ValueError, match="at least"):
            refused()
