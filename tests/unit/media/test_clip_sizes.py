from __future__ import annotations

from fractions import Fraction

import pytest

from serve_app.media.clip_sizes import CLIP_AREAS, CLIP_RATIOS, clip_area, clip_ratio, clip_size
from serve_app.media.geometry import RATIOS, Ratio


@pytest.mark.parametrize(
    ("resolution", "ratio", "size"),
    [
        ("hd", "16:9", (1280, 704)),
        ("hd", "21:9", (1472, 640)),
        ("fhd", "16:9", (1920, 1088)),
    ],
)
def test_named_sizes(resolution: str, ratio: str, size: tuple[int, int]) -> None:
    assert clip_size(RATIOS[ratio], clip_area(resolution)) == size


@pytest.mark.parametrize("resolution", CLIP_AREAS)
@pytest.mark.parametrize("ratio", CLIP_RATIOS)
def test_every_size_is_on_the_grid_near_its_ratio_and_its_area(resolution: str, ratio: Ratio) -> None:
    size = clip_size(ratio, clip_area(resolution))
    assert size.width % 64 == size.height % 64 == 0
    assert size.ratio == pytest.approx(float(ratio), rel=0.06)
    assert size.area == pytest.approx(clip_area(resolution), rel=0.06)
    assert clip_ratio(size.ratio) == ratio, "the ratio can be told from the size"


@pytest.mark.parametrize("resolution", CLIP_AREAS)
@pytest.mark.parametrize("ratio", CLIP_RATIOS)
def test_a_draft_is_half_as_wide_and_half_as_high(resolution: str, ratio: Ratio) -> None:
    full = clip_size(ratio, clip_area(resolution))
    half = clip_size(ratio, clip_area(resolution, draft=True), draft=True)
    assert (2 * half.width, 2 * half.height) == full
    assert half.width % 32 == half.height % 32 == 0
    assert clip_ratio(half.ratio) == ratio


@pytest.mark.parametrize(
    ("width", "height", "name"),
    [(1920, 1080, "16:9"), (1080, 1920, "9:16"), (640, 480, "4:3"), (3, 2, "4:3"), (8, 5, "16:9"), (90, 10, "21:9"),
     (1, 64, "9:21"), (1001, 1000, "1:1")],
)  # fmt: skip
def test_the_nearest_ratio(width: int, height: int, name: str) -> None:
    assert clip_ratio(Fraction(width, height)) == RATIOS[name]
