"""Tells a scene in plain English, in many ways.

What a caption leaves out has a default, so that a picture follows from its prompt: a thing of medium size in the
middle, on white.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from deployments.wording.thing import with_article
from training.worlds import vocabulary
from training.worlds.pictures.scene import Background, Scene, Thing

DEFAULT_BACKGROUND: Final = "white"

_PHRASES: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def caption(scene: Scene, random: Random) -> str:
    """One sentence about all of the scene."""
    told = random.choice(_PHRASES["openings"]) + _told(scene, random) + random.choice(_PHRASES["endings"])
    return told[0].upper() + told[1:] if random.random() < 0.3 else told


def name(thing: Thing, random: Random) -> str:
    """Its size, colour and shape: `a small red star`."""
    size = random.choice(vocabulary.WORDS[thing.size]) if thing.box is None else ""
    return with_article(f"{size} {word(thing.colour, random)} {word(thing.shape, random)}".strip())


def word(named: str, random: Random) -> str:
    """For a colour or a shape: mostly its name itself."""
    synonyms = vocabulary.SYNONYMS.get(named)
    return random.choice(synonyms) if synonyms and random.random() < 0.3 else named


def place(named: str, random: Random) -> str:
    told = named
    if " " in named and random.random() < 0.3:
        told = named.replace("top", "upper").replace("bottom", "lower")
    return random.choice(vocabulary.WORDS[named]).format(told)


def background(behind: Background, random: Random) -> str:
    """`a red background`, `a red and white striped background`, `a gradient from red to white`."""
    first = word(behind.colour, random)
    if behind.second is None:
        return with_article(f"{first} background" if random.random() < 0.8 else f"plain {first} background")
    second = word(behind.second, random)
    match behind.kind:
        case "vertical" | "horizontal":
            way = "from top to bottom" if behind.kind == "vertical" else "from left to right"
            # Gradients run downwards unless something else is said.
            if behind.kind == "vertical" and random.random() < 0.5:
                way = ""
            gradient = with_article(f"{first} to {second} gradient {way}")
            return random.choice((f"a gradient background from {first} to {second} {way}", gradient)).strip()
        case "dotted":
            return with_article(f"{first} background with {second} dots")
        case _:
            return with_article(f"{first} and {second} {behind.kind} background")


def _told(scene: Scene, random: Random) -> str:
    behind = background(scene.background, random)
    if not scene.things:
        return random.choice((behind, f"nothing but {behind}", f"an empty picture with {behind}"))
    if scene.background.colours == (DEFAULT_BACKGROUND,) and random.random() < 0.5:
        return _things(scene.things, random)
    things, on = _things(scene.things, random), random.choice(_PHRASES["behind"]).format(behind)
    if scene.background.second is None and random.random() < 0.1:
        on = f"on {word(scene.background.colour, random)}"
    if len(scene.things) == 1:
        named, at = name(scene.things[0], random), _where(scene.things[0], random)
        orders = [f"{named} {at} {on}", f"{named} {on} {at}", f"{named} {at}, {on}", f"on {behind}, {named} {at}"]
        return " ".join(random.choice(orders).split()).replace(" ,", ",")
    if len(scene.things) == 2 and random.random() < 0.2:
        return _beside(scene.things, on, random) or f"{things} {on}"
    return random.choice((f"{things} {on}", f"{things}, {on}", f"{behind} with {things}", f"on {behind}, {things}"))


def _things(things: Sequence[Thing], random: Random) -> str:
    """All of them with their places: `a, b and c`."""
    if len(things) == 2 and random.random() < 0.3:
        first, second = things
        if relations := _PHRASES["relations"].get(first.place, {}).get(second.place):
            return f"{name(first, random)} {random.choice(relations)} {name(second, random)}"
    told = [f"{name(thing, random)} {_where(thing, random, len(things) > 1)}".strip() for thing in things]
    if len(told) == 1:
        return told[0]
    joint = random.choice((" and ", ", and ", " with ", ", ")) if len(told) == 2 else random.choice((" and ", ", and "))
    return ", ".join(told[:-1]) + joint + told[-1]


def _where(thing: Thing, random: Random, always: bool = False) -> str:
    """Nothing for a thing in the middle, mostly, unless it must be said; nor for a thing in a box."""
    if thing.box is not None:
        return ""
    if thing.place == "center" and not always and random.random() < 0.7:
        return ""
    return place(thing.place, random)


def _beside(things: Sequence[Thing], on: str, random: Random) -> str:
    """The second thing has no place of its own: it is in the first one's row, on the other side."""
    first, second = things
    opposite = {"left": "right", "right": "left"}
    sides = [side for side in opposite if side in first.place]
    if not sides or second.place != first.place.replace(sides[0], opposite[sides[0]]):
        return ""
    return f"{name(first, random)} {place(first.place, random)} {on}, next to {name(second, random)}"
