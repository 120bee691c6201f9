"""Tells a scene in the words of people who are in a hurry: keywords, any order, counts, things without places.

What isn't said has a default, as in captions, so that a picture follows from its prompt; several things without places
are where `arranged` puts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from training.worlds.pictures.captions import DEFAULT_BACKGROUND
from training.worlds.pictures.scene import Background, Scene, Thing

_PHRASES: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_SLIPS: Final = 0.06
"""How often a word that names nothing is left out."""
_SLIPPING: Final = frozenset({"on", "in", "at", "the", "and", "with", "of", "background", "to"})


def saying(scene: Scene, random: Random, placed: bool) -> str:
    """`placed` tells whether places are said; equal things that follow one another are counted."""
    groups = _groups(scene.things)
    told = [_group(group, random, placed) for group in groups]
    things = told[0] if told else ""
    for more in told[1:]:
        things += random.choice(_PHRASES["joints"]) + more
    behind = background(scene.background, random)
    if not things:
        return behind
    if scene.background.colours == (DEFAULT_BACKGROUND,) and random.random() < 0.6:
        return _hurried(things, random)
    parts = [things, behind] if random.random() < 0.7 else [behind, things]
    if len(groups) == 1 and placed and random.random() < 0.2:  # the place at the end
        parts = [named(scene.things[0], random), behind, _place(scene.things[0], random)]
    return _hurried(random.choice((" ", " ", ", ", ". ")).join(parts), random)


def background(behind: Background, random: Random) -> str:
    """`on red background`, `red and white stripes behind it`."""
    around = "plain" if behind.second is None else "patterned"
    return random.choice(_PHRASES[around]).format(pattern(behind, random))


def pattern(behind: Background, random: Random) -> str:
    """`red`, `red and white stripes`."""
    return behind.colour if behind.second is None else random.choice(_PHRASES[behind.kind]).format(*behind.colours)


def _groups(things: Sequence[Thing]) -> list[list[Thing]]:
    """Neighbours that are told as one: of the same shape, colour and size."""
    groups: list[list[Thing]] = []
    for thing in things:
        if groups and _look(groups[-1][0]) == _look(thing):
            groups[-1].append(thing)
        else:
            groups.append([thing])
    return groups


def _look(thing: Thing) -> tuple[str, str, str]:
    return thing.shape, thing.colour, thing.size


def _group(things: Sequence[Thing], random: Random, placed: bool) -> str:
    told = named(things[0], random)
    if len(things) > 1:
        return random.choice(_PHRASES["counted"]).format(count=_PHRASES["counts"][len(things)], things=told)
    if not placed or (things[0].place == "center" and random.random() < 0.5):
        return told
    place = _place(things[0], random)
    return f"{told} {place}" if random.random() < 0.8 else f"{place} {told}"


def named(thing: Thing, random: Random) -> str:
    """Its size, its colour and its shape, in any order."""
    words = [thing.colour, *([] if thing.size == "medium" else [thing.size])]
    if thing.size == "medium" and random.random() < 0.05:
        words.append("medium")
    random.shuffle(words)
    if random.random() < 0.6:
        words.sort(key=lambda word: word == thing.colour)
    return random.choice(_PHRASES["things"]).format(words=" ".join(words), shape=thing.shape)


def _place(thing: Thing, random: Random) -> str:
    return random.choice(_PHRASES["places"]).format(thing.place)


def _hurried(told: str, random: Random) -> str:
    return " ".join(word for word in told.split() if word not in _SLIPPING or random.random() >= _SLIPS)
