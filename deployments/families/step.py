"""The Euler step of images at different points of different schedules: `x += dt * v(x, t)`, with CFG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from deployments.contract.model import CfgConfig
from deployments.families.packed.batch import StepInputs
from deployments.families.state import State, UncondBranch
from deployments.torch_process import wait_for


class Velocity(Protocol):
    def velocity(self, state: State, inputs: StepInputs) -> Tensor:
        """Returns the velocity of one image without an adapter, (1, N, C) float32, by the stock forward."""
        ...

    def packed_velocity(self, x: Tensor, states: Sequence[State], inputs: StepInputs) -> Tensor:
        """Returns the velocity of a sequence of images, (1, T, C) float32. Images with the same adapter are
        adjacent."""
        ...


@torch.inference_mode()
def step(family: Velocity, states: Sequence[State]) -> None:
    """Advances all states by one step, or none. All of them have steps left.

    A single image without an adapter is computed like in the stock pipeline. Raises torch's errors when the batch does
    not fit; the same states may then be stepped in smaller batches.
    """
    if not states:
        return
    assert all(s.i < s.total_steps for s in states), "a finished state in the batch"
    states = sorted(states, key=_sort_key)
    device = states[0].x.device
    inputs, dt = _step_inputs(states, device)
    velocities = _apply_cfg(family, states, _velocities(family, states, inputs))
    latents = [s.x + dt[k] * velocity for k, (s, velocity) in enumerate(zip(states, velocities, strict=True))]
    if device.type == "cuda":
        # GPUs work asynchronously, and the caller measures the duration.
        wait_for(torch.cuda.current_stream(device))
    for state, x, velocity in zip(states, latents, velocities, strict=True):
        state.x, state.v, state.i = x, velocity, state.i + 1
        if state.i == state.total_steps:
            state.packed_batch = state.constants = state.uncond = None


def _velocities(family: Velocity, states: Sequence[State], inputs: StepInputs) -> list[Tensor]:
    """Returns the velocity of each state, (1, N, C)."""
    x = torch.cat([s.x for s in states], dim=1)
    if len(states) == 1 and states[0].adapter is None:
        v = family.velocity(states[0], inputs)
    else:
        v = family.packed_velocity(x, states, inputs)
    assert v.shape == x.shape, f"velocity {tuple(v.shape)} for tokens {tuple(x.shape)}"
    # Copies, as views would keep the whole sequence in memory.
    return [part.clone() for part in v.split([s.x.shape[1] for s in states], dim=1)]


def _apply_cfg(family: Velocity, states: Sequence[State], cond: Sequence[Tensor]) -> Sequence[Tensor]:
    """Applies CFG, `uncond + scale * (cond - uncond)`, to states whose step has a scale other than 1.

    Runs the unconditional batch by itself, as both in one need twice the memory.
    """
    branches = [(k, s.uncond) for k, s in enumerate(states) if s.uncond and s.scale != 1]
    if not branches:
        return cond
    for k, branch in branches:
        branch.state.x, branch.state.i, branch.state.adapter = states[k].x, states[k].i, states[k].adapter
    batch = [branch.state for _, branch in branches]
    inputs, _ = _step_inputs(batch, batch[0].x.device)
    uncond = dict(zip((k for k, _ in branches), _velocities(family, batch, inputs), strict=True))
    return [v if k not in uncond else uncond[k] + states[k].scale * (v - uncond[k]) for k, v in enumerate(cond)]


def _sort_key(state: State) -> tuple[str, str]:
    """Returns a stable order, so that a packed batch serves for many steps, with equal adapters adjacent."""
    adapter = state.job.adapter
    return "" if adapter is None else adapter.id, state.job.id


def _step_inputs(states: Sequence[State], device: torch.device) -> tuple[StepInputs, Tensor]:
    """Returns the inputs and the Euler steps, (B,), by one transfer without synchronising the device."""
    numbers = [[s.t[s.i], s.t[s.i + 1], s.dt[s.i], *([] if s.guidance is None else [s.guidance[s.i]])] for s in states]
    t, t_next, dt, *guidance = torch.stack([torch.stack(each) for each in numbers], dim=1).to(device, non_blocking=True)
    return StepInputs(t, t_next, guidance[0] if guidance else None), dt


def schedule(scheduler: Any, steps: int, mu: float | None = None) -> tuple[Tensor, Tensor]:
    """Returns flow times (S+1,) in [0, 1] and Euler steps (S,), derived from a flow-match scheduler as in the stock
    pipelines.

    `mu` is the logarithm of the shift, for schedulers with a dynamic one. The scheduler is only read, as stepping a
    shared one would tie all images to one schedule. Times are `timesteps / 1000` and not `sigmas`, as the two round
    differently and models get the former.
    """
    own = type(scheduler).from_config(scheduler.config)
    own.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps).tolist(), mu=mu, device="cpu")
    return torch.cat([own.timesteps / 1000, torch.zeros(1)]), own.sigmas[1:] - own.sigmas[:-1]


def with_cfg(state: State, guidance: CfgConfig, per: dict[str, Tensor], ids: dict[str, Tensor]) -> State:
    """Returns `state` with guided steps at times in the interval. `per` and `ids` are those of an empty prompt."""
    low, high = guidance.interval
    scales = [guidance.scale if low <= t <= high else 1.0 for t in state.t[:-1].tolist()]
    return replace(state, uncond=UncondBranch(replace(state, per=state.per | per, ids=state.ids | ids), scales))
