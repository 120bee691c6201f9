"""Which way to compute attention works here: found by trying, as packages and devices differ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from deployments.checkpoint_files import CheckpointError
from deployments.contract.job import GenerationJob
from deployments.engine.backend import JobError
from deployments.families.clip_family import ClipFamily
from deployments.families.family import Family
from deployments.families.packed.attention import ATTENTIONS
from deployments.families.prepared_request import PreparedRequest
from deployments.families.state import State
from deployments.families.step import step

logger = logging.getLogger(__name__)

_ALIKE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}
"""Up to which share of the largest velocity a packed forward may differ from the stock one: roundings stay far below,
a picture that sees its neighbours does not."""


def use_attention(family: Family | ClipFamily, names: Sequence[str]) -> str:
    """Switches to the first of diffusers' attention backends that can draw a small picture here, and returns its name.

    A backend may be missing, refuse this device, or fail only when called; each is logged with its reason. Raises
    CheckpointError when none works.
    """

    def use(name: str) -> None:
        family.transformer.set_attention_backend(name)
        _probe(family)

    return _first(names, use, family.transformer.reset_attention_backend)


def use_packed_attention(family: Family, names: Sequence[str]) -> str:
    """Switches pictures that take a step together to the first of `names`, of `packed.attention.ATTENTIONS`, by which
    they come out as alone. Logged and raised as by `use_attention`."""

    def use(name: str) -> None:
        if name not in ATTENTIONS:
            raise ValueError(f"it should be one of {', '.join(ATTENTIONS)}")
        family.use_packed_attention(ATTENTIONS[name])
        _probe_packed(family)

    return _first(names, use, lambda: family.use_packed_attention(ATTENTIONS["one_by_one"]))


def _first(names: Sequence[str], use: Callable[[str], None], reset: Callable[[], None]) -> str:
    reasons = []
    for name in names:
        try:
            use(name)
        except Exception as error:  # backends come from many packages, each failing in its own way
            logger.warning("attention backend %s is unusable here: %s", name, error)
            reasons.append(f"{name} ({error})")
            reset()
            continue
        return name
    raise CheckpointError(f"no attention backend works here: {'; '.join(reasons) or 'none was named'}")


def _probe(family: Family | ClipFamily) -> None:
    """One step of something small. Raises whatever goes wrong, RuntimeError for numbers that are none."""
    probed = family.probe() if isinstance(family, ClipFamily) else _velocities(family, [_picture(family, 64, 64)])[0]
    if not torch.isfinite(probed).all():
        raise RuntimeError("its results are not finite")


def _probe_packed(family: Family) -> None:
    """Two small pictures of different shapes, together and alone."""
    sizes = (64, 64), (128, 64)
    together = _velocities(family, [_picture(family, *size) for size in sizes])
    alone = [_velocities(family, [_picture(family, *size)])[0] for size in sizes]
    for one, other in zip(together, alone, strict=True):
        if not (one - other).abs().max() <= _ALIKE[family.transformer.dtype] * other.abs().max():
            raise RuntimeError("pictures that step together are not what they are alone")


def _velocities(family: Family, states: list[State]) -> list[Tensor]:
    step(family, states)
    return [state.v for state in states if state.v is not None]


def _picture(family: Family, width: int, height: int) -> State:
    job = GenerationJob(
        id=f"probe-{width}x{height}",
        attempt=0,
        prompt="a probe",
        width=width,
        height=height,
        steps=1,
        seed=0,
        output_format="png",
        output_prefix="probe",
    )
    [state] = family.encode([PreparedRequest(job)])
    if isinstance(state, JobError):
        raise state
    return state
