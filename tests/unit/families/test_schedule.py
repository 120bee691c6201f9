from __future__ import annotations

import pytest
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

from deployments.families.step import schedule


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_schedules_fall_from_one_to_zero_and_leave_the_scheduler_alone(steps: int) -> None:
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
