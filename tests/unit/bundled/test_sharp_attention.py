from __future__ import annotations

import pytest
import torch
from torch import nn

from deployments.bundled import build_flux1, build_flux2, build_flux3
from deployments.bundled.sharp_attention import WHAT, WHERE


def gains(transformer: nn.Module) -> list[torch.Tensor]:
    return [weight for name, weight in transformer.named_parameters() if "norm_q" in name or "norm_k" in name]


@pytest.mark.parametrize(
    ("transformer", "fast"),
    [
        # Per axis, how many numbers turn by a fifth of a radian and more from one token to the next.
        (build_flux1.transformer(0), (0, 4, 4)),
        (build_flux2.transformer(), (0, 8, 8, 0)),
        (build_flux3.transformer(), (0, 8, 8, 0)),
    ],
)
def test_positions_have_the_larger_gain(transformer: nn.Module, fast: tuple[int, ...]) -> None:
    axes = transformer.config["axes_dims_rope"]  # pyright: ignore[reportIndexIssue, reportArgumentType, reportCallIssue]
    expected = [WHERE if index < fast[axis] else WHAT for axis, size in enumerate(axes) for index in range(size)]
    found = gains(transformer)
    assert len(found) >= 8
    assert all(gain.tolist() == expected for gain in found)
