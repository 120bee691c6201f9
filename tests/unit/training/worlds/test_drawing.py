from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from training.worlds import palette, shapes
from training.worlds.pictures.drawing import backdrops, draw
from training.worlds.pictures.scene import Background, Scene, Thing
from training.worlds.shapes import silhouettes

GRID = (8, 8)
AREAS = {
    # Of the square around each, by geometry.
    "circle": 0.785,
    "square": 0.74,
    "ring": 0.785 * (1 - 0.52**2),
    "cross": 0.32 * 2 - 0.32**2,
    "diamond": 0.5 / 1.35,
}


def test_things_have_their_colour_and_so_has_what_is_behind() -> None:
    scene = Scene((Thing("square", "red"),), Background("dark blue"))
    pictures, covered = draw([scene], GRID, 16)
    assert pictures.shape == (1, 3, 128, 128)
    assert torch.allclose(pictures[0, :, 64, 64], palette.rgb(["red"])[0])
    assert torch.allclose(pictures[0, :, 2, 2], palette.rgb(["dark blue"])[0])
    assert covered[0, 0, 64, 64] == 1
    assert covered[0, 0, 2, 2] == 0


@pytest.mark.parametrize("name", AREAS)
def test_shapes_have_their_area(name: str) -> None:
    mask = silhouettes([name], torch.tensor([[256.0, 256.0, 128.0]]), (512, 512))
    assert mask.mean() * 4 == pytest.approx(AREAS[name], rel=0.02)


@pytest.mark.parametrize("name", shapes.NAMES)
def test_shapes_are_solid_and_stay_in_their_square(name: str) -> None:
    mask = silhouettes([name], torch.tensor([[80.0, 48.0, 25.6]]), (128, 128))[0]
    rows, columns = (mask.amax(dim).nonzero()[:, 0] for dim in (1, 0))
    top, left = (-0.25 - 0.4 + 1) * 64, (0.25 - 0.4 + 1) * 64
    assert top - 1 <= rows.min() <= rows.max() <= top + 0.8 * 64 + 1
    assert left - 1 <= columns.min() <= columns.max() <= left + 0.8 * 64 + 1
    # A ring's hole and the bay of a moon apart, the middle is inside: a star is no hole in the shape of a star.
    if name not in ("ring", "moon"):
        assert mask[int(top + 25), int(left + 25)] == 1


def test_no_two_shapes_look_alike() -> None:
    masks = silhouettes(shapes.NAMES, torch.tensor([[64.0, 64.0, 57.6]] * len(shapes.NAMES)), (128, 128)).flatten(1)
    common = masks @ masks.T
    area = masks.sum(1)
    overlap = common / (area[:, None] + area - common)
    assert (overlap - torch.eye(len(masks))).max() < 0.85


def test_fine_drawings_average_to_coarse_ones() -> None:
    scene = Scene((Thing("heart", "pink", "large"), Thing("moon", "black", "small", "top left")), Background("green"))
    fine, _ = draw([scene], (8, 14), 16)
    coarse, _ = draw([scene], (8, 14), 4)
    assert (F.avg_pool2d(fine, 4) - coarse).abs().mean() < 0.01


def test_patterns_follow_the_tokens_and_gradients_run_from_end_to_end() -> None:
    striped, checkered, vertical = backdrops(
        [Background("white", kind, "black") for kind in ("striped", "checkered", "vertical")], (2, 2), 4
    )
    light, dark = palette.rgb(["white", "black"])[:, 0].tolist()
    assert striped[0, 0].tolist() == pytest.approx([light] * 4 + [dark] * 4)
    assert checkered[0, :, 0].tolist() == pytest.approx([light] * 4 + [dark] * 4)
    assert vertical[0, 0, 0] > vertical[0, 3, 0] > vertical[0, 7, 0]
