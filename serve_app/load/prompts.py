"""Prompts that nobody wrote: for loads whose prompts are not known, or are nobody's business."""

from __future__ import annotations

import random
from typing import Final

_SIZES: Final = ("small", "large")
_COLOURS: Final = ("red", "green", "blue", "yellow", "orange", "white", "black", "cyan")
_THINGS: Final = ("star", "circle", "square", "triangle", "diamond", "heart")
_PLACES: Final = ("", " on the left", " on the right", " in the top left", " in the bottom right")


def made_up(chance: random.Random) -> str:
    thing, ground = chance.sample(_COLOURS, 2)
    return (
        f"a {chance.choice(_SIZES)} {thing} {chance.choice(_THINGS)}{chance.choice(_PLACES)} on a {ground} background"
    )
