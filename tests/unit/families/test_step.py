from __future__ import annotations

import pytest
import torch
from support.jobs import make_job
from torch import Tensor, nn

from deployments.engine.backend import OutOfMemory
from deployments.families.state import State
from deployments.families.step import step


class Painter:
    """Moves each token by its own condition, and remembers what it was called with."""

    transformer = nn.Identity()

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.times: list[tuple[list[float], list[float]]] = []
        self.conditions: list[Tensor] = []

    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        if self.error is not None:
            raise self.error
        self.times.append((t.tolist(), t_next.tolist()))
        self.conditions.append(per["text"])
        return per["text"].expand_as(x)


def a_state(speed: float, steps: int = 4, key: str = "small") -> State:
    t = torch.linspace(1, 0, steps + 1)
    return State(
        job=make_job(size=32, steps=steps),
        key=key,
        x=torch.zeros(1, 4, 2),
        t=t,
        dt=t[1:] - t[:-1],
        per={"text": torch.full((1, 1, 2), speed)},
        shared={},
        grid=(2, 2),
        frame=(32, 32),
    )


def test_every_state_moves_by_its_own_time_and_condition() -> None:
    painter, early, late = Painter(), a_state(1.0, steps=4), a_state(10.0, steps=2)
    step(painter, [late])
    step(painter, [early, late])
    assert painter.times[-1] == ([1.0, 0.5], [0.75, 0.0])
    assert early.x.unique().tolist() == [-0.25]
    assert late.x.unique().tolist() == [-10.0]
    assert (early.done_steps, early.total_steps) == (1, 4)
    assert (late.done_steps, late.total_steps) == (2, 2)


def test_conditions_are_joined_once_per_membership() -> None:
    painter, states = Painter(), [a_state(float(k), steps=8) for k in range(3)]
    step(painter, states)
    step(painter, states)
    assert painter.conditions[0] is painter.conditions[1]
    step(painter, states[1:])
    assert painter.conditions[-1].flatten().tolist() == [1, 1, 2, 2]
    step(painter, [states[0], states[2]])
    assert painter.conditions[-1].flatten().tolist() == [0, 0, 2, 2]
    step(painter, states)
    assert painter.conditions[-1].flatten().tolist() == [0, 0, 1, 1, 2, 2]


def test_a_finished_state_holds_on_to_no_batch_mates() -> None:
    painter, first, second = Painter(), a_state(1.0, steps=1), a_state(2.0, steps=2)
    step(painter, [first, second])
    assert first.joined is None


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_a_batch_that_does_not_fit_changes_nothing(error: Exception) -> None:
    states = [a_state(1.0), a_state(2.0)]
    with pytest.raises(OutOfMemory):
        step(Painter(error), states)
    assert [state.done_steps for state in states] == [0, 0]
    assert all(state.x.count_nonzero() == 0 and state.v is None for state in states)
    step(Painter(), states)
    assert [state.done_steps for state in states] == [1, 1]


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        step(Painter(RuntimeError("shapes do not match")), [a_state(1.0)])


def test_states_of_different_keys_never_share_a_batch() -> None:
    with pytest.raises(AssertionError):
        step(Painter(), [a_state(1.0), a_state(1.0, key="large")])
