from __future__ import annotations

from fractions import Fraction
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.inputs.geometry import (
    GRID,
    MAX_AREA,
    MAX_SIDE,
    MEGAPIXEL,
    MIN_SIDE,
    RATIOS,
    TIERS,
    VIDEO_AREAS,
    VIDEO_RATIOS,
    ImageSize,
    Ratio,
    Size,
    billed_megapixels,
    fit,
    image_size,
    megapixels,
    nearest_tier,
    ratio_from_prompt,
    scale_to,
    size_for,
    size_within,
    video_area,
    video_ratio,
    video_size,
)

SIDES = st.integers(1, 20_000)
ALL = [(name, tier) for name in RATIOS for tier in TIERS]


@pytest.mark.parametrize(("ratio", "tier"), ALL)
def test_size_within_a_tier_is_billed_as_the_tier(ratio: str, tier: str) -> None:
    size = size_within(RATIOS[ratio], TIERS[tier])
    assert billed_megapixels(size.area) == billed_megapixels(TIERS[tier])
    nearest = size_for(RATIOS[ratio], TIERS[tier])
    fits = billed_megapixels(nearest.area) <= billed_megapixels(TIERS[tier])
    shorter = max(nearest) - GRID
    assert (min(size), max(size)) == (min(nearest), max(nearest) if fits else shorter)


@given(st.fractions(Fraction(1, 4), Fraction(4)), st.integers(256**2, MAX_AREA))
def test_sides_are_the_nearest_multiples_of_the_grid(ratio: Fraction, area: int) -> None:
    width, height = size_for(ratio, area)
    assert width % GRID == height % GRID == 0
    assert abs(width - sqrt(area * ratio)) <= GRID / 2 + 1e-6
    assert abs(height - sqrt(area / ratio)) <= GRID / 2 + 1e-6


def test_nearest_tier_follows_the_area() -> None:
    sizes = [(886, 886), (887, 887), (1920, 1080), (9000, 9000)]
    assert [nearest_tier(*size) for size in sizes] == ["768sq", "1k", "1.5k", "4k"]


@given(SIDES, SIDES)
def test_fitted_size_keeps_limits_and_ratio(width: int, height: int) -> None:
    size = fit(width, height)
    assert MIN_SIDE <= min(size) <= max(size) <= MAX_SIDE
    assert size.area <= MAX_AREA
    if min(width, height) >= MIN_SIDE and max(width, height) <= MAX_SIDE and width * height <= MAX_AREA:
        assert size == (width, height)
    assert fit(*size) == size
    if max(width, height) * MIN_SIDE <= min(width, height) * MAX_SIDE:
        assert abs(size.width - size.height * width / height) <= max(1.0, width / height) + 1e-6


@given(st.integers(100, 6000), st.integers(100, 6000), st.sampled_from(sorted(TIERS.values())))
def test_scale_to_reaches_the_area_within_the_limits(width: int, height: int, area: int) -> None:
    size = scale_to(width, height, area)
    assert size.area <= MAX_AREA
    assert max(size) <= MAX_SIDE
    if max(size) < MAX_SIDE and min(size) > MIN_SIDE:
        assert size.area == pytest.approx(area, rel=0.03)


def test_area_reported_as_one_megapixel_is_billed_as_one() -> None:
    areas = (0, 1, MEGAPIXEL, 1152 * 912, 1040 * 1024)
    assert [megapixels(area) for area in areas] == [0.0, 0.0, 1.0, 1.0, 1.02]
    assert [billed_megapixels(area) for area in areas] == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("fields", "area", "size"),
    [
        ({"width": 640, "height": 480, "aspect_ratio": "1:1", "reference": (9, 9)}, 640 * 480, (640, 480)),
        ({}, TIERS["1k"], None),
        ({"resolution": "2k"}, TIERS["2k"], None),
        ({"reference": (1001, 667)}, 1001 * 667, (1001, 667)),
        ({"reference": (2000, 2000), "aspect_ratio": "1:1"}, 2048**2, (2048, 2048)),
        ({"reference": (2000, 2000), "aspect_ratio": "1:1", "resolution": "1k"}, 1024**2, (1024, 1024)),
    ],
)
def test_size_follows_sides_then_reference_then_tier(
    fields: dict[str, Any], area: int, size: tuple[int, int] | None
) -> None:
    assert image_size(**fields) == ImageSize(area, size and Size(*size))


def test_edit_in_a_tier_keeps_the_ratio_of_its_reference() -> None:
    decided = image_size(reference=(500, 250), resolution="1k")
    assert decided.size is not None
    assert decided.area == decided.size.area == pytest.approx(TIERS["1k"], rel=0.01)
    assert abs(decided.size.width - 2 * decided.size.height) <= 2


@pytest.mark.parametrize("resolution", VIDEO_AREAS)
@pytest.mark.parametrize("ratio", VIDEO_RATIOS)
def test_video_size_fits_ratio_and_area_and_drafts_have_half(resolution: str, ratio: Ratio) -> None:
    size = video_size(ratio, video_area(resolution))
    assert size.width % 64 == size.height % 64 == 0
    assert size.ratio == pytest.approx(float(ratio), rel=0.06)
    assert size.area == pytest.approx(video_area(resolution), rel=0.06)
    assert video_ratio(size.ratio) == ratio, "the ratio can be told from the size"
    half = video_size(ratio, video_area(resolution, draft=True), draft=True)
    assert (2 * half.width, 2 * half.height) == size
    assert half.width % 32 == half.height % 32 == 0
    assert video_ratio(half.ratio) == ratio


def test_video_has_the_nearest_ratio() -> None:
    sizes = [(1920, 1080), (1080, 1920), (640, 480), (3, 2), (8, 5), (90, 10), (1, 64), (1001, 1000)]
    names = ["16:9", "9:16", "4:3", "4:3", "16:9", "21:9", "9:21", "1:1"]
    assert [video_ratio(Fraction(*size)) for size in sizes] == [RATIOS[name] for name in names]


NAMED_RATIOS = {
    "9:16": ("a cat in 9 \u00d7 16.", "Instagram  story of a fox"),
    "3:2": ("a 3-by-2 print of a cat",),
    "16:9": ("a cat, 1920x1080", "a widescreen shot, not a phone wallpaper"),
    "21:9": ("a cat, 2.39:1", "an ultra-wide shot"),
    "4:5": ("an 8x10 photo",),
    "4:3": ("4:3, not 16:9",),
    "1:1": ("a fox in square format",),
    "2:3": ("portrait orientation",),
}


@pytest.mark.parametrize("ratio", RATIOS)
def test_prompt_names_a_ratio_in_numbers_or_words(ratio: str) -> None:
    for prompt in (f"a cat, {ratio}", *NAMED_RATIOS.get(ratio, ())):
        assert ratio_from_prompt(prompt) == ratio, prompt


NO_RATIO = (
    "a station at 16:30; 9:16 pm, rain; the run took 1:23:45; a model in scale 1:100; see http://host:80/16; "
    "a big blue square; a portrait of a landscape painter"
)


@pytest.mark.parametrize("prompt", NO_RATIO.split("; "))
def test_other_numbers_and_words_name_no_ratio(prompt: str) -> None:
    assert ratio_from_prompt(prompt) is None


@given(st.text(alphabet="0123456789:x. by-square\n\u00d7", max_size=200))
def test_ratio_of_any_prompt_is_supported_or_none(prompt: str) -> None:
    assert ratio_from_prompt(prompt) in {None, *RATIOS}
