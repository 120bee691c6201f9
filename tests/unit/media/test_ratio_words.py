from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.inputs.geometry import RATIOS, ratio_from_prompt


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
