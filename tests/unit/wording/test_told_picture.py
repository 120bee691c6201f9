"""What a picture shall show, in people's words."""

from __future__ import annotations

from itertools import permutations

import pytest
from support.bundle import WORDS

from deployments.wording.items import items
from deployments.wording.picture import Picture, read


def picture(prompt: str) -> Picture | None:
    return read(items(WORDS.pieces(prompt), WORDS), WORDS)


def told(prompt: str) -> str:
    seen = picture(prompt)
    return seen.said() if seen else ""


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        # As it was learnt.
        ("a small red star in the top left on a dark blue background", None),
        ("a red circle on the left and a blue square on the right on a white background", None),
        ("a large pink heart on a gradient background from white to light blue from left to right", None),
        # Any order, keywords, capitals.
        ("RED STAR, white background", "a red star on a white background"),
        ("circle, green, centered, bg: black", "a green circle on a black background"),
        ("star big green on background pink", "a large green star on a pink background"),
        ('draw(shape="square", color="cyan", size="large")', "a large cyan square"),
        ("On blue, top left: a moon, yellow", "a yellow moon in the top left on a blue background"),
        ("white star. green background. star goes bottom middle.", "a white star at the bottom on a green background"),
        # Several things.
        ("star and moon, purple star", "a purple star on the left and a red moon on the right"),
        (
            "triangle brown left square pink right",
            "a brown triangle on the left and a pink square on the right",
        ),
        (
            "top left: cyan circle. bottom: white square. background green",
            "a cyan circle in the top left and a white square at the bottom on a green background",
        ),
        (
            "a teal square and a diamond, the diamond should be small and crimson",
            "a cyan square on the left and a small red diamond on the right",
        ),
        (
            "heart top-left, heart bottom-right, first red, second blue",
            "a red heart in the top left and a blue heart in the bottom right",
        ),
        ("a circle and a moon, both large", "a large red circle on the left and a large orange moon on the right"),
        ("a star above a blue circle", "a red star at the top and a blue circle at the bottom"),
        (
            "a red star in the top left, next to a blue circle",
            "a red star in the top left and a blue circle in the top right",
        ),
        # Counts.
        ("2 red hearts", "a red heart on the left and a red heart on the right"),
        ("moons x3 gray", "a gray moon at the top, a gray moon in the bottom left and a gray moon in the bottom right"),
        ("two red hearts at the top", "a red heart at the top and a red heart in the top left"),
        (
            "three shapes: a red star, a blue moon and a green ring",
            "a red star at the top, a blue moon in the bottom left and a green ring in the bottom right",
        ),
        ("two red stars in the center", "a red star in the center and a red star on the left"),
        ("two hearts top left", "a red heart in the top left and a red heart at the top"),
        (
            "four red stars on the left",
            "a red star on the left, a red star in the top left, a red star in the bottom left"
            " and a red star in the top right",
        ),
        # What isn't there.
        ("a red star without a moon", "a red star"),
        ("a red star, no moon", "a red star"),
        ("ein roter Stern ohne Mond", "a red star"),
        ("a red star but no small blue moons on the left", "a red star"),
        ("only a red star, no circles", "a red star"),
        ("no moon, a red star", "a red star"),
        # What is behind everything.
        ("red heart, sky blue behind it", "a red heart on a light blue background"),
        ("ring on stripes of red and white", "an orange ring on a red and white striped background"),
        ("ring, checkered backdrop red and white", "an orange ring on a red and white checkered background"),
        ("yellow dots on blue, a red ring", "a red ring on a blue background with yellow dots"),
        ("ring; background red with white polka dots", "an orange ring on a red background with white dots"),
        (
            "red moon, fade from blue on the right to pink on the left",
            "a red moon on a gradient background from pink to blue from left to right",
        ),
        ("just a gray background, nothing on it", "a gray background"),
        ("stripes, green and blue", "a green and blue striped background"),
        # What has to be chosen.
        ("a star", "a star"),
        ("a large star", "a large red star"),
        ("a large star on red", "a large orange star on a red background"),
        ("white star", "a white star on a black background"),
        ("a white and a black star", "a white star on the left and a black star on the right on a gray background"),
        ("something purple", "a purple circle"),
        ("cats", ""),
        ("", ""),
    ],
)
def test_a_picture_is_told_as_it_was_learnt(prompt: str, said: str | None) -> None:
    assert told(prompt) == (prompt if said is None else said)


def test_there_are_five_things_at_most_and_small_ones_then() -> None:
    seen = picture("five hearts and four stars")
    assert seen is not None
    assert [(thing.shape, thing.size) for thing in seen.things] == [("heart", "small")] * 5
    assert len({thing.place for thing in seen.things}) == 5


def test_things_are_told_in_any_order() -> None:
    parts = ["red star on the left", "a large blue moon at the bottom", "green ring, top right"]
    seen = [picture(", ".join(order)) for order in permutations(parts)]
    assert len({frozenset(one.things) for one in seen if one}) == 1
