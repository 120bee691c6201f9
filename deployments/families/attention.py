"""Which way to compute attention works here: found by trying, as packages and devices differ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from deployments.checkpoint_files import CheckpointError
from deployments.families.clip_family import ClipFamily
from deployments.families.family import Family
from deployments.families.packed.attention import ATTENTIONS
from deployments.families.probe import try_alone, try_together

logger = logging.getLogger(__name__)


def use_attention(family: Family | ClipFamily, names: Sequence[str]) -> str:
    """Switches to the first of diffusers' attention backends that can draw a small picture here, and returns its name.

    A backend may be missing, refuse this device, or fail only when called; each is logged with its reason. Raises
    CheckpointError when none works.
    """

    def use(name: str) -> None:
        family.transformer.set_attention_backend(name)
        try_alone(family)

    return _first(names, use, family.transformer.reset_attention_backend)


def use_packed_attention(family: Family, names: Sequence[str]) -> str:
    """Switches pictures that take a step together to the first of `names`, of `packed.attention.ATTENTIONS`, by which
    they come out as alone. Logged and raised as by `use_attention`."""

    def use(name: str) -> None:
        if name not in ATTENTIONS:
            raise ValueError(f"it should be one of {', '.join(ATTENTIONS)}")
        family.use_packed_attention(ATTENTIONS[name])
        try_together(family)

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
