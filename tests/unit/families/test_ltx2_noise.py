from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import calculate_shift
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from torch import Tensor

from deployments.families.ltx2 import distilled_levels, enhancing_levels, scheduled_levels

STEPS = [1, 5, 40]


def scheduler(**options: Any) -> Any:
    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, **options)


def assert_falls(sigmas: Tensor, steps: int, first: float) -> None:
    assert sigmas.shape == (steps + 1,)
    assert sigmas.dtype == torch.float32
    assert (sigmas.diff() < 0).all()
    assert float(sigmas[0]) == pytest.approx(first)
    assert float(sigmas[-1]) == 0


@pytest.mark.parametrize("steps", STEPS)
def test_any_number_of_steps_falls_to_none(steps: int) -> None:
    assert_falls(distilled_levels(steps), steps, 1.0)
    assert_falls(enhancing_levels(steps), steps, STAGE_2_DISTILLED_SIGMA_VALUES[0])


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("terminal", [None, 0.1])
@pytest.mark.parametrize("tokens", [6, 124440])
def test_any_schedule_falls_from_one_to_none(steps: int, terminal: float | None, tokens: int) -> None:
    assert_falls(scheduled_levels(scheduler(shift_terminal=terminal), steps, tokens), steps, 1.0)


def test_levels_that_models_were_distilled_to_are_met_exactly() -> None:
    assert distilled_levels(8).tolist() == torch.tensor([*DISTILLED_SIGMA_VALUES, 0.0]).tolist()
    assert enhancing_levels(3).tolist() == torch.tensor([*STAGE_2_DISTILLED_SIGMA_VALUES, 0.0]).tolist()


def test_half_as_many_steps_take_every_other_level() -> None:
    assert torch.equal(distilled_levels(4), distilled_levels(8)[::2])


@pytest.mark.parametrize("tokens", [24, 4096])
def test_a_schedule_is_what_the_stock_pipeline_sets(tokens: int) -> None:
    stock = scheduler(shift_terminal=0.1)
    before = stock.sigmas.clone()
    mine = scheduled_levels(stock, 7, tokens)
    assert torch.equal(stock.sigmas, before), "the scheduler is shared between clips"
    stock.set_timesteps(sigmas=np.linspace(1.0, 1 / 7, 7), mu=calculate_shift(tokens, 256, 4096, 0.95, 2.05))
    assert torch.equal(mine, stock.sigmas)


def test_clips_larger_than_the_scheduler_knows_are_treated_like_the_largest_it_knows() -> None:
    known, huge = (scheduled_levels(scheduler(shift_terminal=0.1), 6, tokens) for tokens in (4096, 53680))
    assert torch.equal(known, huge)
