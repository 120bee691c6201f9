from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.media.geometry import RATIOS
from serve_app.media.ratio_words import ratio_from_prompt


@pytest.mark.parametrize(
    ("prompt", "ratio"),
    [
        ("a cat, 16:9", "16:9"),
        ("16:9 a cat", "16:9"),
        ("a cat (3:2)", "3:2"),
        ("a cat in 9x16", "9:16"),
        ("a cat in 9 \u00d7 16.", "9:16"),
        ("a cat, 3 by 2", "3:2"),
        ("a 3-by-2 print of a cat", "3:2"),
        ("a cat, 1920x1080", "16:9"),
        ("a cat, 512 X 512", "1:1"),
        ("a cat, 1080x1350 pixels", "4:5"),
        ("a cat, 2.39:1", "21:9"),
        ("an 8x10 photo", "4:5"),
        ("a cat, 16:10", "3:2"),
        ("a cat, 1:1", "1:1"),
    ],
)
def test_numbers(prompt: str, ratio: str) -> None:
    assert ratio_from_prompt(prompt) == ratio


@pytest.mark.parametrize("name", RATIOS)
@pytest.mark.parametrize("template", ["{} cat", "a cat, {}", "a cat in {} ratio, at night"])
def test_every_supported_ratio_is_understood(name: str, template: str) -> None:
    assert ratio_from_prompt(template.format(name)) == name


@pytest.mark.parametrize(
    "prompt",
    [
        "a station at 16:30",
        "at 9:16 the train leaves",
        "9:16 pm, rain",
        "a clock that reads 9:21",
        "12:45 on a wall",
        "the run took 1:23:45",
        "John 3:16 on a sign",
        "a 4x4 truck",
        "a 3x3 grid of cats",
        "a model in scale 1:100",
        "a 1:87 railway",
        "0:1",
        "see http://host:80/16",
        "version 2.4.8x2",
        "100:1 odds",
        "a cat",
        "",
    ],
)
def test_not_a_ratio(prompt: str) -> None:
    assert ratio_from_prompt(prompt) is None


def test_a_time_marked_as_a_ratio_is_one() -> None:
    assert ratio_from_prompt("render at 9:16 aspect ratio") == "9:16"
    assert ratio_from_prompt("render at 16:9") == "16:9"


def test_the_first_number_pair_wins_and_numbers_win_over_words() -> None:
    assert ratio_from_prompt("4:3, not 16:9") == "4:3"
    assert ratio_from_prompt("a square portrait, 16:9") == "16:9"
    assert ratio_from_prompt("at 16:30, a cat, 3:4") == "3:4"


@pytest.mark.parametrize(
    ("prompt", "ratio"),
    [
        ("a square painting", "1:1"),
        ("a square oil painting of a dog", "1:1"),
        ("a fox, square", "1:1"),
        ("Square. A fox.", "1:1"),
        ("a fox in square format", "1:1"),
        ("a fox, make it square", "1:1"),
        ("a horizontal photo of a fox", "16:9"),
        ("Portrait of a woman", "2:3"),
        ("a mountain LANDSCAPE", "3:2"),
        ("a widescreen shot", "16:9"),
        ("an ultra-wide shot", "21:9"),
        ("an ultrawide shot", "21:9"),
        ("cinematic still", "21:9"),
        ("a panorama of Rome", "21:9"),
        ("phone wallpaper, forest", "9:16"),
        ("phone  wallpaper, forest", "9:16"),
        ("desktop wallpaper, forest", "16:9"),
        ("a vertical shot", "9:16"),
        ("a banner for a shop", "21:9"),
        ("a poster for a play", "2:3"),
        ("an instagram story", "9:16"),
        ("album cover for a jazz band", "1:1"),
        ("an avatar of a fox", "1:1"),
        ("icon of a fox", "1:1"),
        ("a very tall giraffe, full height", "2:3"),
        ("full-length portrait of a dancer", "2:3"),
        ("a towering lighthouse", "2:3"),
    ],
)
def test_words(prompt: str, ratio: str) -> None:
    assert ratio_from_prompt(prompt) == ratio


@pytest.mark.parametrize(
    "prompt",
    [
        "squares and squared",
        "iconic",
        "portraits",
        "Times Square at night",
        "a love story",
        "a two-story house",
        "banners",
        "a lion in tall grass",
        "taller",
        "a big blue square",
        "a red square on the left, a blue square on the right",
        "a square and a circle",
        "square table in a garden",
        "vertical stripes behind a star",
        "a horizontal gradient from red to blue",
    ],
)
def test_only_whole_words_about_the_shape(prompt: str) -> None:
    assert ratio_from_prompt(prompt) is None


def test_words_for_shapes_win_over_words_for_things() -> None:
    assert ratio_from_prompt("portrait of a knight, widescreen") == "16:9"
    assert ratio_from_prompt("a knight before a banner, portrait orientation") == "2:3"
    assert ratio_from_prompt("a poster with a banner") == "2:3"
    assert ratio_from_prompt("Times Square, vertical") == "9:16"


@given(st.text(alphabet="0123456789:x. by-square\n\u00d7", max_size=200))
def test_the_answer_is_a_supported_ratio_or_none(prompt: str) -> None:
    assert ratio_from_prompt(prompt) in {None, *RATIOS}
