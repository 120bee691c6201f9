"""What of a picture shall change, in people's words."""

from __future__ import annotations

import pytest
from support.bundle import WORDS

from deployments.wording.changes import read
from deployments.wording.items import items


def asked(prompt: str) -> str:
    return read(items(WORDS.pieces(prompt), WORDS))


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (["MOVE THE HEART RIGHT", "the heart on the right, please", "put heart to the right side"],
         "move the heart to the right"),
        (["move the heart from left to right", "shift heart from the left side to the right"],
         "move the heart to the right"),
        (["heart up", "move the heart upwards", "the heart must be higher", "put the heart above the star"],
         "move the heart to the top"),
        (["get rid of the moon", "no moon", "delete moon!", "take the crescent away", "without the moon",
          "the moon has to go", "hide the moon", "scrap the moon", "rimuovi la luna",
          "remove the moon beside the star"],
         "remove the moon"),
        (
            ["paint the star green", "the star should be green", "star: green", "make the star lime", "star in green"],
            "make the star green",
        ),
        (["only the heart", "remove everything except the heart", "remove what isn't a heart",
          "delete all that isnt the heart"],
         "remove everything but the heart"),
        (["turn the box into a star", "the square → star", "replace square with a star",
          "a star instead of the square", "instead of the square draw a star", "add a star instead of the square",
          "there should be a star instead of a square", "remove the square, put a star instead"],
         "turn the square into a star"),
        (["scale up the plus", "the cross large", "enlarge the cross"], "make the cross large"),
        (["the moon bigger", "a larger moon: make the moon larger", "double the size of the moon",
          "the moon is too small", "make the moon twice as big"],
         "make the moon bigger"),
        (["the moon is too big", "decrease the size of the moon", "the moon half as big"], "make the moon smaller"),
        (["shrink it", "make it tiny", "it should be small"], "make it small"),
        (["background black", "black background instead", "the backdrop should be black", "put it on black",
          "instead of gray behind it i'd like black", "cambia el fondo a negro", "no more stripes, black instead",
          "change the red background to black", "swap out the red background for a black one",
          "instead of a white background I want black"],
         "change the background to a black background"),
        (["add a red star top left", "a red star in the top left corner", "put another star, a red one, top left",
          "in the top left corner a red star", "put a red star top left next to the moon"],
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
        (["keep the star, make it red", "make the star red and leave the rest as it is", "mets l'étoile en rouge"],
         "make the star red"),
        (["use stripes, red and white"], "change the background to a red and white striped background"),
        (["add a red star on the left and one on the right", "a red star on the left, a red star on the right"],
         "add a red star on the left and add a red star on the right"),
        (["add two red stars", "draw 2 red stars", "add two stars and make them red"],
         "add a red star on the left and add a red star on the right"),
        (["add two small red stars at the top", "add two red stars at the top, make them small"],
         "add a small red star at the top and add a small red star in the top left"),
        (["add two red stars and one at the top"],
         "add a red star on the left and add a red star on the right and add a red star at the top"),
        (["add a red star and a blue moon"], "add a red star in the center and add a blue moon on the left"),
        # Which one.
        (["make the left one bigger and the right one small"],
         "make the thing on the left bigger and make the thing on the right small"),
        (["make both stars white", "the two stars should be white"], "make both star white"),
        (["make everything white", "all of them white", "color both things white"], "make both thing white"),
        (["make the red one white", "the red thing should be white", "the red one: white"],
         "make the red thing white"),
        (["remove the one below it", "remove the one at the bottom"], "remove the thing at the bottom"),
        (["make the star next to the moon white"], "make the star white"),
        (["move the red star up to the top"], "move the red star to the top"),
        (["the diamond on the right side, not on the left"], "move the diamond to the right"),
        # Nothing that is known.
        (["make it nicer", "", "cats"], ""),
    ],
)  # fmt: skip
def test_changes_are_asked_for_as_they_were_learnt(prompts: list[str], said: str) -> None:
    assert {prompt: asked(prompt) for prompt in prompts} == dict.fromkeys(prompts, said)
