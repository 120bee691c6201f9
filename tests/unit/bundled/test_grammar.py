"""Normalization of prompts for the bundled checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.bundled.grammar import image, items, read, words


@pytest.mark.parametrize(
    ("prompt", "known"),
    [
        ("a RED star", "a red star"),
        ("Étoile, cœur", "star , heart"),
        ("a star & a circle.\nA ring", "a star and a circle , a ring"),
        ("a r\u00aded star, redish", "a red star ,"),
        ("image two, <ref_image_0>", "image 2 , image 1"),
        # One letter is wrong, missing, extra or swapped, not the first one and not in short words.
        ("cirkle circl circcle cicrle", "circle circle circle circle"),
        ("sta tircle", ""),
        ("a cat and a star", "a and a star"),
        ("кошка ??", ""),
    ],
)
def test_words_are_mapped_to_known_ones(prompt: str, known: str) -> None:
    assert " ".join(words.normalize(prompt)) == known


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        # The form of the training data.
        ("a small red star in the top left on a dark blue background", None),
        ("a red circle on the left and a blue square on the right on a white background", None),
        ("a large pink heart on a gradient background from white to light blue from left to right", None),
        # Any order, keywords, capitals.
        ("circle, green, centered, bg: black", "a green circle on a black background"),
        ("white star. green background. star goes bottom middle.", "a white star at the bottom on a green background"),
        # Several shapes, and counts.
        ("triangle brown left square pink right", "a brown triangle on the left and a pink square on the right"),
        ("a circle and a moon, both large", "a large red circle on the left and a large orange moon on the right"),
        ("two red hearts at the top", "a red heart at the top and a red heart in the top left"),
        ("moons x3 gray", "a gray moon at the top, a gray moon in the bottom left and a gray moon in the bottom right"),
        # Negations and backgrounds.
        ("ein roter Stern ohne Mond", "a red star"),
        ("just a gray background, nothing on it", "a gray background"),
        ("ring; background red with white polka dots", "an orange ring on a red background with white dots"),
        (
            "red moon, fade from blue on the right to pink on the left",
            "a red moon on a gradient background from pink to blue from left to right",
        ),
        # Contradictions.
        ("a star", "a star"),
        ("white star", "a white star on a black background"),
        ("something purple", "a purple circle"),
    ],
)
def test_image_prompt_is_normalized(prompt: str, said: str | None) -> None:
    assert read(prompt, 0) == (said or prompt)


def test_order_of_shapes_does_not_matter() -> None:
    parts = ["red star on the left", "a large blue moon at the bottom", "green ring, top right"]
    drawings = [image.read(items.parse(words.normalize(", ".join(order)))) for order in permutations(parts)]
    assert len({frozenset(one.things) for one in drawings if one}) == 1


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("MOVE THE HEART RIGHT", "move the heart to the right"),
        ("rimuovi la luna", "remove the moon"),
        ("star: green", "make the star green"),
        ("remove everything except the heart", "remove everything but the heart"),
        ("a star instead of the square", "turn the square into a star"),
        ("double the size of the moon", "make the moon bigger"),
        ("shrink it", "make it small"),
        ("change the red background to black", "change the background to a black background"),
        ("use stripes, red and white", "change the background to a red and white striped background"),
        ("put another star, a red one, top left", "add a red star in the top left"),
        ("lose the cross, and the ring goes to the center", "remove the cross and move the ring to the center"),
        ("the moon is too big, make it small", "make the moon small"),
        ("make the left one bigger and the right one small",
         "make the thing on the left bigger and make the thing on the right small"),
        ("color both things white", "make both thing white"),
        ("make the star next to the moon white", "make the star white"),
    ],
)  # fmt: skip
def test_edit_prompt_is_normalized(prompt: str, said: str) -> None:
    assert read(prompt, 1) == said


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("add the star from image 2 to image 1 on the left", None),
        ("heart of <ref_image_0> into <ref_image_1>", "add the heart from image 1 to image 2"),
        ("picture two gets the ring of picture one, in the middle",
         "add the ring from image 1 to image 2 in the center"),
        ("the ring from pic 1 on the background of pic 2", "the ring from image 1 on the background of image 2"),
        ("use image 2's background for image 1", "image 1 on the background of image 2"),
        ("a picture star, image 2", "add the star from image 1 to image 2"),
        ("image 2 and a picture background", "image 1 on the background of image 2"),
    ],
)  # fmt: skip
def test_prompt_with_two_images_is_normalized(prompt: str, said: str | None) -> None:
    assert read(prompt, 2) == (said or prompt)


def test_unknown_words_are_listed_once() -> None:
    assert words.find_unknown("A Lighthouse, a CRIMSON star and a lighthouse; cat") == ["lighthouse", "cat"]
    assert words.find_unknown("two crimson discs on navy") == []


def test_placed_tuned_and_layout_prompts_are_kept() -> None:
    assert read("STAR red, bg blue", 0, placed=True) == "star red, background blue"
    assert read("zorb, a STAR", 0, tuned=True) == "zorb, a star", "an adapter may know the word"
    layout = 'background blue [{"id": "Cat_1", "bbox": [1, 2, 3, 4], "desc": "A  Cat, sat."}]'
    assert read(layout, 0) == layout


@pytest.mark.parametrize("prompt", ["p", "кошка", "!!!", "cat, dog", ""])
@pytest.mark.parametrize("images", [0, 1, 3])
def test_prompt_of_unknown_words_becomes_a_space(prompt: str, images: int) -> None:
    assert read(prompt, images) == " "


_LISTED = sorted({*words._KNOWN, *words._MEANINGS})


@given(st.lists(st.sampled_from([*_LISTED, ",", ".", "cat", "7", "image 1"]), max_size=25).map(" ".join),
       st.integers(0, 2))  # fmt: skip
def test_normalized_prompt_has_only_known_words(prompt: str, images: int) -> None:
    said = read(prompt, images)
    assert {word.strip(",") for word in said.split() if word.strip(",").isalpha()} <= words._KNOWN


@given(st.text(max_size=200), st.integers(0, 2))
def test_any_text_is_normalized_without_error(text: str, images: int) -> None:
    read(text, images)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda n: "s" * n,
        lambda n: "es" * (n // 2),
        lambda n: "please " * (n // 7),
        lambda n: "red and " * (n // 8) + "circle",
        lambda n: "in the " * 150,
        lambda n: "[ " * (n // 2),
        lambda n: "a\u0301" * (n // 2),
        lambda n: "\ufdfa" * n,
        lambda n: "<ref_image_" + "9" * n,
        lambda n: "\ud800 " * (n // 2),
    ],
)
def test_hostile_text_takes_linear_time(make: Callable[[int], str]) -> None:
    prompt, start = make(100_000), time.process_time()
    for images in (0, 1, 2):
        read(prompt, images)
    assert time.process_time() - start < 15, "quadratic time would take minutes"
