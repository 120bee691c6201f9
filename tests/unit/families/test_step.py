from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from support.jobs import make_job
from torch import Tensor

from deployments.families.packed.batch import StepInputs
from deployments.families.state import State, UncondBranch
from deployments.families.step import schedule, step
from deployments.lora.segments import AppliedAdapter


class Painter:
    """A fake model that moves each token by its condition and records its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.times: list[tuple[list[float], list[float]]] = []
        self.guidance: list[list[float] | None] = []
        self.alone: list[bool] = []

    def velocity(self, state: State, inputs: StepInputs) -> Tensor:
        self.alone.append(True)
        return self._move([state], inputs)

    def packed_velocity(self, x: Tensor, states: Sequence[State], inputs: StepInputs) -> Tensor:
        self.alone.append(False)
        assert x.shape[1] == sum(state.x.shape[1] for state in states)
        return self._move(states, inputs)

    def _move(self, states: Sequence[State], inputs: StepInputs) -> Tensor:
        if self.error is not None:
            raise self.error
        self.times.append((inputs.t.tolist(), inputs.t_next.tolist()))
        self.guidance.append(None if inputs.guidance is None else inputs.guidance.tolist())
        return torch.cat([state.per["text"].expand_as(state.x) for state in states], dim=1)


def make_state(name: str, speed: float, steps: int = 4, tokens: int = 4, guidance: float | None = None) -> State:
    t = torch.linspace(1, 0, steps + 1)
    return State(
        job=make_job(name, size=32, steps=steps),
        x=torch.zeros(1, tokens, 2),
        t=t,
        dt=t[1:] - t[:-1],
        per={"text": torch.full((1, 1, 2), speed)},
        ids={},
        grid=(2, 2),
        frame=(32, 32),
        guidance=None if guidance is None else guidance * torch.arange(1, steps + 1).float(),
    )


def test_each_state_has_its_own_time_and_condition() -> None:
    painter, early, late = Painter(), make_state("a", 1.0, steps=4), make_state("b", 10.0, steps=2, tokens=6)
    step(painter, [late])
    step(painter, [early, late])
    assert painter.times[-1] == ([1.0, 0.5], [0.75, 0.0])
    assert early.x.unique().tolist() == [-0.25]
    assert late.x.unique().tolist() == [-10.0]
    assert (early.done_steps, early.total_steps) == (1, 4)
    assert (late.done_steps, late.total_steps) == (2, 2)


def test_each_state_has_the_guidance_of_its_step() -> None:
    painter, early, late = Painter(), make_state("a", 1.0, guidance=2.0), make_state("b", 1.0, guidance=3.0)
    step(painter, [early])
    step(painter, [late, early])
    assert painter.guidance == [[2.0], [4.0, 3.0]]


def test_cfg_applies_only_to_its_state() -> None:
    painter, plain, guided = Painter(), make_state("a", 1.0), make_state("b", 10.0)
    guided.uncond = UncondBranch(make_state("b", 4.0), [1.0, 3.0, 3.0, 1.0])
    for _ in range(2):
        step(painter, [plain, guided])
    assert plain.x.unique().tolist() == [-0.5]
    assert guided.x.unique().tolist() == [-2.5 - 0.25 * (4 + 3 * (10 - 4))]
    assert [len(times) for times, _ in painter.times] == [2, 2, 1]
    assert painter.times[-1] == ([0.75], [0.5])
    for _ in range(2):
        step(painter, [plain, guided])
    assert guided.uncond is None, "the branch is dropped after its last step"


def test_adapter_acts_in_both_cfg_passes() -> None:
    painter, guided = Painter(), make_state("a", 1.0)
    guided.uncond, guided.adapter = UncondBranch(make_state("a", 0.0), [2.0] * 4), AppliedAdapter({}, 1.0)
    step(painter, [guided])
    assert painter.alone == [False, False]


def test_single_image_uses_the_stock_forward_without_adapter() -> None:
    painter, plain, tuned = Painter(), make_state("a", 1.0), make_state("b", 1.0)
    tuned.adapter = AppliedAdapter({}, 1.0)
    for states in ([plain], [tuned], [plain, tuned]):
        step(painter, states)
    assert painter.alone == [True, False, False]


def test_state_owns_only_its_part_of_the_batch() -> None:
    states = [make_state(name, 1.0) for name in "abc"]
    step(Painter(), states)
    for state in states:
        assert state.v is not None
        assert state.x.untyped_storage().nbytes() == state.v.untyped_storage().nbytes() == 4 * 2 * 4


def test_out_of_memory_changes_no_state() -> None:
    states = [make_state("a", 1.0), make_state("b", 2.0)]
    with pytest.raises(torch.OutOfMemoryError):
        step(Painter(torch.OutOfMemoryError("CUDA out of memory")), states)
    assert [state.done_steps for state in states] == [0, 0]
    assert all(state.x.count_nonzero() == 0 and state.v is None for state in states)
    step(Painter(), states)
    assert [state.done_steps for state in states] == [1, 1]


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_schedule_falls_and_leaves_the_scheduler_unchanged(steps: int) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=6.93)
    before = torch.as_tensor(scheduler.timesteps).clone()
    t, dt = schedule(scheduler, steps)
    assert t.shape == (steps + 1,)
    assert dt.shape == (steps,)
    assert t[0] == 1
    assert t[-1] == 0
    assert (dt < 0).all()
    torch.testing.assert_close(t[1:] - t[:-1], dt, atol=1e-6, rtol=0)
    assert torch.equal(torch.as_tensor(scheduler.timesteps), before)
