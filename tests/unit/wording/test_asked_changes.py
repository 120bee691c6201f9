"""What of a picture shall change, in people's words."""

from __future__ import annotations

from random import Random

import pytest

from deployments.wording.changes import read
from deployments.wording.items import items
from training.build.words import WORDS
from training.lessons.pictures import change


def asked(prompt: str) -> str:
    return read(items(WORDS.pieces(prompt), WORDS))


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (["MOVE THE HEART RIGHT", "the heart on the right, please", "put heart to the right side"],
         "move the heart to the right"),
        (["get rid of the moon", "no moon", "delete moon!", "take the crescent away", "without the moon"],
         "remove the moon"),
        (
            ["paint the star green", "the star should be green", "star: green", "make the star lime", "star in green"],
            "make the star green",
        ),
        (["only the heart", "remove everything except the heart"], "remove everything but the heart"),
        (["turn the box into a star", "the square → star", "replace square with a star",
          "a star instead of the square"],
         "turn the square into a star"),
        (["scale up the plus", "the cross large", "enlarge the cross"], "make the cross large"),
        (["the moon bigger", "a larger moon: make the moon larger"], "make the moon bigger"),
        (["shrink it", "make it tiny", "it should be small"], "make it small"),
        (["background black", "black background instead", "the backdrop should be black", "put it on black",
          "instead of gray behind it i'd like black"],
         "change the background to a black background"),
        (["add a red star top left", "a red star in the top left corner", "put another star, a red one, top left",
          "in the top left corner a red star"],
         "add a red star in the top left"),
        # More than one at a time.
        (["make the star red and small", "star red, star small"], "make the star red and make the star small"),
        (["lose the cross, and the ring goes to the center", "delete the cross and centre the ring"],
         "remove the cross and move the ring to the center"),
        (["remove the cross and the ring"], "remove the cross and remove the ring"),
        (["turn it into an arrow and move it to the left"], "turn it into an arrow and move the arrow to the left"),
        (["replace the circle with a small red heart"],
         "turn the circle into a heart and make the heart red and make the heart small"),
        (["the moon is too big, make it small"], "make the moon small"),
        (["use stripes, red and white"], "change the background to a red and white striped background"),
        # Which one.
        (["make the left one bigger and the right one small"],
         "make the thing on the left bigger and make the thing on the right small"),
        (["make both stars white"], "make both star white"),
        (["move the red star up to the top"], "move the red star to the top"),
        (["the diamond on the right side, not on the left"], "move the diamond to the right"),
        # Nothing that is known.
        (["make it nicer", "", "cats"], ""),
    ],
)  # fmt: skip
def test_changes_are_asked_for_as_they_were_learnt(prompts: list[str], said: str) -> None:
    assert {prompt: asked(prompt) for prompt in prompts} == dict.fromkeys(prompts, said)


def test_what_was_learnt_is_read_as_itself() -> None:
    random = Random(5)
    for _ in range(300):
        lesson = change(random, (8, 8))
        assert lesson.read == asked(lesson.prompt) != "", lesson.prompt
        assert asked(lesson.read) == lesson.read
