"""One Euler step of a batch whose members may be at different points of different schedules: `x += dt * v(x, t)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from deployments.adapters.batched import adapted
from deployments.families.device_errors import translated_device_errors
from deployments.families.state import State


class Velocity(Protocol):
    @property
    def transformer(self) -> Any: ...
    def velocity(
        self, x: Tensor, t: Tensor, t_next: Tensor, per: dict[str, Tensor], shared: dict[str, Tensor]
    ) -> Tensor:
        """(B, N, C) float32 tokens at times `t` (B,), heading for `t_next` (B,), to their velocity (B, N, C)."""
        ...


@torch.inference_mode()
def step(family: Velocity, states: Sequence[State]) -> None:
    """Advances every state by one step, all or nothing.

    All states have the same key and steps left to do. Raises OutOfMemory when the batch did not fit; nothing was
    changed then, and the same states may be tried again in smaller batches.
    """
    if not states:
        return
    assert all(s.key == states[0].key for s in states), "states of different keys in one batch"
    assert all(s.i < s.total_steps for s in states), "a finished state in the batch"
    with translated_device_errors():
        x = torch.cat([s.x for s in states])
        # One transfer for all three rows of scalars, and no synchronisation with the device.
        times = torch.stack([torch.stack((s.t[s.i], s.t[s.i + 1], s.dt[s.i])) for s in states], dim=1)
        t, t_next, dt = times.to(x.device, non_blocking=True)
        # A model takes a single time as the time of all its rows without complaint, and the pictures come out wrong.
        assert x.ndim == 3
        assert t.shape == t_next.shape == dt.shape == (len(states),)
        with adapted(family.transformer, [s.adapter for s in states]):
            v = family.velocity(x, t, t_next, _conditions(states), states[0].shared)
        assert v.shape == x.shape, f"velocity {tuple(v.shape)} for tokens {tuple(x.shape)}"
        moved = (x + dt[:, None, None] * v.float()).split(1)
        velocities = v.float().split(1)
        if x.is_cuda:
            # A GPU works on in the background, but whoever times steps or waits for them must see them end.
            torch.cuda.current_stream(x.device).synchronize()
    for state, row, velocity in zip(states, moved, velocities, strict=True):
        state.x, state.v, state.i = row, velocity, state.i + 1
        if state.i == state.total_steps:
            state.joined = None


def _conditions(states: Sequence[State]) -> dict[str, Tensor]:
    """The `per` of all states in one, (B, ...); kept with the first state, as copying them each step is dear."""
    first, *others = states
    if not others:
        return first.per
    kept = first.joined
    if kept is not None and len(kept[0]) == len(others) and all(a is b for a, b in zip(kept[0], others, strict=True)):
        return kept[1]
    rows = {name: torch.cat([s.per[name] for s in states]) for name in first.per}
    for state in others:
        state.joined = None
    first.joined = (others, rows)
    return rows
