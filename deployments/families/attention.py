"""Attention backends and compilation of a transformer: chosen by trying, as packages and devices differ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from deployments.checkpoint_files import CheckpointError
from deployments.families.clip_family import ClipFamily
from deployments.families.family import Family
from deployments.families.packed.attention import ATTENTIONS
from deployments.families.probe import SMALL, step_seconds, try_alone, try_together

logger = logging.getLogger(__name__)

_FASTER: Final = 0.97
"""Of the time of the best so far: what a later name must not exceed to be preferred, so that chance decides nothing."""
_TYPICAL: Final = 1024
"""Pixels per side of the image that GPUs are measured with."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The backends that work here, the fastest first; that one is in use."""

    usable: Sequence[str]
    unusable: Sequence[str]


def use_attention(family: Family | ClipFamily, names: Sequence[str]) -> Attention:
    """Switches to the fastest of diffusers' attention backends that can draw a small picture here.

    A backend may be missing, refuse this device, or fail only when called; each is logged with its reason. Several
    that work are measured by a step; of equals, the first in `names` is taken. Raises CheckpointError when none works.
    """

    def use(name: str) -> None:
        family.transformer.set_attention_backend(name)
        try_alone(family)

    def reset() -> None:
        # By name: diffusers' own reset leaves its global choice as it was.
        family.transformer.set_attention_backend("native")

    return _fastest(names, use, reset, partial(step_seconds, family, _measured_side(family)))


def use_packed_attention(family: Family, names: Sequence[str]) -> Attention:
    """Switches pictures that take a step together to the fastest of `names`, of `packed.attention.ATTENTIONS`, by which
    they come out as alone. Logged and raised as by `use_attention`."""

    def use(name: str) -> None:
        if name not in ATTENTIONS:
            raise ValueError(f"it should be one of {', '.join(ATTENTIONS)}")
        family.use_packed_attention(ATTENTIONS[name])
        try_together(family)

    seconds = partial(step_seconds, family, _measured_side(family), count=4)
    return _fastest(names, use, lambda: family.use_packed_attention(ATTENTIONS["one_by_one"]), seconds)


def compile_blocks(family: Family | ClipFamily, attentions: Sequence[str]) -> str | None:
    """Compiles the transformer's repeated blocks with the first of `attentions` that can be compiled, draws a small
    picture so, and returns its name. None, with nothing compiled, where none can: the reasons are logged."""
    for name in attentions:
        family.transformer.set_attention_backend(name)
        family.transformer.compile_repeated_blocks(fullgraph=True, dynamic=True)
        try:
            try_alone(family)
        except Exception as error:  # compilers raise what they like
            logger.warning("the model can't be compiled with attention %s: %s", name, f"{error}".partition("\n")[0])
            undo_compilation(family.transformer)
            continue
        return name
    family.transformer.set_attention_backend(attentions[0])
    return None


def undo_compilation(transformer: Any) -> None:
    """The transformer's blocks run as they are again."""
    for module in transformer.modules():
        module._compiled_call_impl = None
    torch._dynamo.reset()


def _measured_side(family: Family | ClipFamily) -> int:
    return _TYPICAL if family.transformer.device.type == "cuda" else SMALL


def _fastest(
    names: Sequence[str], use: Callable[[str], None], reset: Callable[[], None], seconds: Callable[[], float]
) -> Attention:
    reasons: dict[str, str] = {}
    for name in names:
        try:
            use(name)
        except Exception as error:  # backends come from many packages, each failing in its own way
            logger.warning("attention backend %s is unusable here: %s", name, error)
            reasons[name] = str(error)
            reset()
    usable = [name for name in names if name not in reasons]
    if not usable:
        told = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise CheckpointError(f"no attention backend works here: {told or 'none was named'}")
    if len(usable) > 1:
        taken: dict[str, float] = {}
        for place, name in enumerate(usable):
            use(name)
            taken[name] = seconds() * _FASTER**-place
        logger.info("attention: %s", ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in taken.items()))
        usable.sort(key=taken.__getitem__)
    use(usable[0])
    return Attention(usable, list(reasons))
