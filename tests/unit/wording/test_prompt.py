"""What of a job's prompt a checkpoint with words of its own gets to read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bundle import WORDS

from deployments.wording.prompt import LONGEST, read


@pytest.mark.parametrize(
    ("pictures", "prompt", "told"),
    [
        (0, "STAR red, bg blue", "a red star on a blue background"),
        (1, "star red, bg blue", "make the star red and change the background to a blue background"),
        (2, "star from picture 1 into picture 2", "add the star from image 1 to image 2"),
        (3, "the STAR of image 2, image 1", "the star of image 2, image 1"),
    ],
)
def test_pictures_that_are_given_tell_what_is_meant(pictures: int, prompt: str, told: str) -> None:
    assert read(prompt, WORDS, pictures) == told


def test_what_stands_beside_the_prompt_says_where_things_are() -> None:
    assert read("STAR red, bg blue", WORDS, 0, placed=True) == "a star red, a background blue"


def test_words_that_a_tuned_model_may_have_learnt_stay() -> None:
    assert read("zorb, a STAR", WORDS, 0, tuned=True) == "zorb, a star"


def test_a_region_table_stays_as_it_is() -> None:
    table = '[{"id": "Cat_1", "bbox": [1, 2, 3, 4], "desc": "A  Cat, sat."}]'
    assert read(f"background blue {table}", WORDS, 0) == f"a background blue {table}"


@pytest.mark.parametrize("prompt", ["p", "кошка", "!!!", "cat, dog", " ", ""])
@pytest.mark.parametrize("pictures", [0, 1, 2, 3])
def test_something_is_left_to_read_of_unknown_words_alone(prompt: str, pictures: int) -> None:
    assert read(prompt, WORDS, pictures) == " "


_SAID = st.sampled_from([*WORDS.known, *WORDS.said_for, ",", ".", "cat", "7", "image 1"])


@given(st.lists(_SAID, max_size=25).map(" ".join), st.integers(0, 2))
def test_whatever_is_said_is_put_in_known_words(prompt: str, pictures: int) -> None:
    assert WORDS.unknown(read(prompt, WORDS, pictures)) == ()


@given(st.text(max_size=200), st.integers(0, 2))
def test_any_text_can_be_read(text: str, pictures: int) -> None:
    read(text, WORDS, pictures)


def test_what_is_very_long_is_only_put_in_known_words() -> None:
    prompt = "red star on the left, " * LONGEST
    assert read(prompt, WORDS, 0) == WORDS.normalised(prompt)


def test_words_without_things_are_only_put_in_order() -> None:
    abstract = replace(WORDS, shapes=())
    for pictures in (0, 1, 2):
        assert read("small, red", abstract, pictures) == abstract.normalised("small, red")
