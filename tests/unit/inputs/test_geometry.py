"""Sizes of images and of videos."""

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
def test_what_is_sized_later_costs_what_its_tier_does(ratio: str, tier: str) -> None:
    size = size_within(RATIOS[ratio], TIERS[tier])
    assert billed_megapixels(size.area) == billed_megapixels(TIERS[tier])
    nearest = size_for(RATIOS[ratio], TIERS[tier])
    fits = billed_megapixels(nearest.area) <= billed_megapixels(TIERS[tier])
    shorter = max(nearest) - GRID
    assert (min(size), max(size)) == (min(nearest), max(nearest) if fits else shorter)


@given(st.fractions(Fraction(1, 4), Fraction(4)), st.integers(256**2, MAX_AREA))
def test_size_for_any_ratio_and_area(ratio: Fraction, area: int) -> None:
    width, height = size_for(ratio, area)
    assert width % GRID == height % GRID == 0
    assert abs(width - sqrt(area * ratio)) <= GRID / 2 + 1e-6
    assert abs(height - sqrt(area / ratio)) <= GRID / 2 + 1e-6


@pytest.mark.parametrize(
    ("size", "tier"),
    [((1, 1), "768sq"), ((886, 886), "768sq"), ((887, 887), "1k"), ((1920, 1080), "1.5k"), ((9000, 9000), "4k")],
)
def test_nearest_tier(size: tuple[int, int], tier: str) -> None:
    assert nearest_tier(*size) == tier


@given(SIDES, SIDES)
def test_fit_holds_all_limits_and_keeps_what_is_within(width: int, height: int) -> None:
    size = fit(width, height)
    assert MIN_SIDE <= min(size) <= max(size) <= MAX_SIDE
    assert size.area <= MAX_AREA
    if min(width, height) >= MIN_SIDE and max(width, height) <= MAX_SIDE and width * height <= MAX_AREA:
        assert size == (width, height)
    assert fit(*size) == size


@given(SIDES, SIDES)
def test_fit_keeps_the_ratio_to_the_pixel(width: int, height: int) -> None:
    if max(width, height) * MIN_SIDE <= min(width, height) * MAX_SIDE:
        size = fit(width, height)
        assert abs(size.width - size.height * width / height) <= max(1.0, width / height) + 1e-6


@given(st.integers(100, 6000), st.integers(100, 6000), st.sampled_from(sorted(TIERS.values())))
def test_scale_to_reaches_the_area_within_the_limits(width: int, height: int, area: int) -> None:
    size = scale_to(width, height, area)
    assert size.area <= MAX_AREA
    assert max(size) <= MAX_SIDE
    if max(size) < MAX_SIDE and min(size) > MIN_SIDE:
        assert size.area == pytest.approx(area, rel=0.03)


@pytest.mark.parametrize(
    ("area", "reported", "billed"),
    [
        (0, 0.0, 0),
        (1, 0.0, 1),
        (MEGAPIXEL, 1.0, 1),
        # What is reported as a whole one is billed as that.
        (1152 * 912, 1.0, 1),
        (1040 * 1024, 1.02, 2),
    ],
)
def test_megapixels(area: int, reported: float, billed: int) -> None:
    assert megapixels(area) == reported
    assert billed_megapixels(area) == billed


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
def test_what_decides_the_size(fields: dict[str, Any], area: int, size: tuple[int, int] | None) -> None:
    assert image_size(**fields) == ImageSize(area, size and Size(*size))


def test_edit_with_auto_and_a_tier_keeps_the_exact_ratio() -> None:
    decided = image_size(reference=(500, 250), resolution="1k")
    assert decided.size is not None
    assert decided.area == decided.size.area == pytest.approx(TIERS["1k"], rel=0.01)
    assert abs(decided.size.width - 2 * decided.size.height) <= 2


@pytest.mark.parametrize("resolution", VIDEO_AREAS)
@pytest.mark.parametrize("ratio", VIDEO_RATIOS)
def test_sizes_of_videos_are_near_ratio_and_area_and_drafts_half_of_them(resolution: str, ratio: Ratio) -> None:
    size = video_size(ratio, video_area(resolution))
    assert size.width % 64 == size.height % 64 == 0
    assert size.ratio == pytest.approx(float(ratio), rel=0.06)
    assert size.area == pytest.approx(video_area(resolution), rel=0.06)
    assert video_ratio(size.ratio) == ratio, "the ratio can be told from the size"
    half = video_size(ratio, video_area(resolution, draft=True), draft=True)
    assert (2 * half.width, 2 * half.height) == size
    assert half.width % 32 == half.height % 32 == 0
    assert video_ratio(half.ratio) == ratio


@pytest.mark.parametrize(
    ("width", "height", "name"),
    [(1920, 1080, "16:9"), (1080, 1920, "9:16"), (640, 480, "4:3"), (3, 2, "4:3"), (8, 5, "16:9"), (90, 10, "21:9"),
     (1, 64, "9:21"), (1001, 1000, "1:1")],
)  # fmt: skip
def test_the_nearest_ratio(width: int, height: int, name: str) -> None:
    assert video_ratio(Fraction(width, height)) == RATIOS[name]


@pytest.mark.parametrize(
    ("prompt", "ratio"),
    [
        *((f"a cat, {name}", name) for name in RATIOS),
        ("a cat in 9 \u00d7 16.", "9:16"),
        ("a 3-by-2 print of a cat", "3:2"),
        ("a cat, 1920x1080", "16:9"),
        ("a cat, 2.39:1", "21:9"),
        ("an 8x10 photo", "4:5"),
        ("4:3, not 16:9", "4:3"),
        ("a fox in square format", "1:1"),
        ("a widescreen shot, not a phone wallpaper", "16:9"),
        ("an ultra-wide shot", "21:9"),
        ("Instagram  story of a fox", "9:16"),
        ("portrait orientation", "2:3"),
    ],
)
def test_a_ratio_in_numbers_or_words(prompt: str, ratio: str) -> None:
    assert ratio_from_prompt(prompt) == ratio


@pytest.mark.parametrize(
    "prompt",
    [
        "a station at 16:30",
        "9:16 pm, rain",
        "the run took 1:23:45",
        "a model in scale 1:100",
        "see http://host:80/16",
        "a big blue square",
        "a portrait of a landscape painter",
    ],
)
def test_what_is_no_ratio(prompt: str) -> None:
    assert ratio_from_prompt(prompt) is None


@given(st.text(alphabet="0123456789:x. by-square\n\u00d7", max_size=200))
def test_the_answer_is_a_supported_ratio_or_none(prompt: str) -> None:
    assert ratio_from_prompt(prompt) in {None, *RATIOS}
