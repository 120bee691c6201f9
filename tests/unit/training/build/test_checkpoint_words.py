from __future__ import annotations

from itertools import combinations

import pytest

from deployments.contract.words import Words
from training.build.bundle import CHECKPOINTS
from training.build.words import WORDS


@pytest.mark.parametrize("checkpoint", ["flux3", "flux2klein", "flux", "kontext", "fill", "canny"])
def test_checkpoints_have_the_words_of_the_vocabulary(checkpoint: str) -> None:
    assert Words.of(CHECKPOINTS / checkpoint) == WORDS


def test_no_word_means_two_things() -> None:
    said = {phrase for phrase, meaning in WORDS.said_for.items() if phrase != meaning}
    for one, other in combinations((set(WORDS.known), said, set(WORDS.fillers)), 2):
        assert not one & other


def test_what_is_meant_is_known() -> None:
    meant = {word for phrase in WORDS.said_for.values() for word in phrase.split() if word.isalpha()}
    assert meant <= set(WORDS.known)


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        (
            "star on dark blue and light blue striped background",
            "a star on a dark blue and light blue striped background",
        ),
        ("a rough matte red star, simple shapes", "a red star"),
    ],
)
def test_colours_of_two_words_stay_together_and_textures_are_no_colours(prompt: str, read: str) -> None:
    assert WORDS.normalised(prompt) == read
