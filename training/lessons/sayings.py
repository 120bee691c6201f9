"""What is practised in people's own words: pictures told in a hurry, and changes asked for as people do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from training.lessons.lesson import Lesson
from training.worlds import palette, shapes
from training.worlds.pictures.sayings import background, named, pattern, saying
from training.worlds.pictures.scene import (
    Background,
    Grid,
    Scene,
    Thing,
    arranged,
    random_background,
    random_scene,
    settled,
)
from training.worlds.vocabulary import PLACES, SIZES

_ASKED: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_TRIES: Final = 200

_CLOSE: Final = 0.12
"""Between things, at least, in tokens: people ask for large ones, too."""


def people_scene(random: Random, grid: Grid, held_out: bool = False) -> tuple[Scene, bool]:
    """A scene, and whether places are told: one, two or three things, or two to five equal ones, some with another."""
    while True:
        kind = random.choices(("placed", "unplaced", "counted", "nothing"), (40, 22, 36, 2 * (not held_out)))[0]
        if kind == "placed":
            return random_scene(random, grid, random.choices((1, 2, 3), (6, 3, 1))[0], held_out), True
        background = random_background(random)
        if random.random() < 0.3:
            background = Background("white", shade=background.shade)
        if kind == "nothing":
            return Scene((), background), False
        things = _unplaced(random) if kind == "unplaced" else _counted(random)
        scene = Scene(_arranged(things, random), background)
        if scene.fits(grid, _CLOSE) and scene.held_out == held_out:
            return scene, False


def _unplaced(random: Random) -> list[Thing]:
    """One to three that differ; in the same shape or the same colour, now and then."""
    things = [_any_thing(random) for _ in range(random.choices((1, 2, 3), (4, 8, 3))[0])]
    same = random.random()
    if same < 0.12:
        things = [replace(thing, shape=things[0].shape) for thing in things]
    elif same < 0.24:
        things = [replace(thing, colour=things[0].colour) for thing in things]
    return things


def _counted(random: Random) -> list[Thing]:
    count = random.choices((2, 3, 4, 5), (3, 3, 3, 3))[0]
    things = [_any_thing(random)] * count
    if count < 5 and random.random() < 0.25:
        others = [_any_thing(random)] * random.randint(1, min(2, 5 - count))
        things = things + others if random.random() < 0.7 else others + things
    if len(things) > 4:
        things = [replace(thing, size="small") for thing in things]
    return things


def _any_thing(random: Random) -> Thing:
    size = random.choices(tuple(SIZES), (2, 5, 2))[0]
    return Thing(random.choice(shapes.NAMES), random.choice(palette.NAMES), size)


def _arranged(things: Sequence[Thing], random: Random) -> tuple[Thing, ...]:
    """Where `arranged` has them, each a little off."""
    placed = []
    for thing, where in zip(things, arranged(len(things)), strict=True):
        moved = settled(replace(thing, place=where.place), random)
        across, down = (here + jitter for here, jitter in zip(where.shift, moved.shift, strict=True))
        placed.append(replace(moved, shift=(across, down)))
    return tuple(placed)


def say(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """Text to image."""
    scene, placed = people_scene(random, grid, held_out)
    return Lesson(saying(scene, random, placed), scene)


def ask(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """One or two changes of a picture, the second of another thing or of the background."""
    for _ in range(_TRIES):
        before = _pictured(random, grid)
        text, after = _change(before, random)
        if random.random() < 0.35:
            more, after = _change(after, random, before)
            text += random.choice(_ASKED["joints"]) + more
        if before != after and after.things + before.things and after.fits(grid) and after.held_out == held_out:
            return Lesson(text, after, (before,))
    raise RuntimeError(f"no change was found for a canvas of {grid} tokens")


def join(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """The thing of one picture in the other, which keeps its own; or both on one background."""
    while True:
        source, into = _pictured(random, grid, 1), _pictured(random, grid, random.choices((0, 1), (1, 3))[0])
        swapped = random.random() < 0.5
        there, here = random.choice(_ASKED["pictures"])[:: -1 if swapped else 1]
        place = random.choice(tuple(PLACES))
        thing = replace(settled(source.things[0], random), place=place)
        which = _which(source.things[0], random)
        words = {"which": which, "there": there, "here": here, "at": _at(place, random)}
        kind = random.choices(("join", "carry", "backdrop"), (5, 2, 2))[0]
        if kind == "join":
            after = replace(into, things=(*into.things, thing))
        elif kind == "carry":
            after = replace(into, things=(thing,))
        else:
            after = replace(source, background=into.background)
        if after.fits(grid) and after.held_out == held_out:
            given = (into, source) if swapped else (source, into)
            return Lesson(random.choice(_ASKED[kind]).format(**words), after, given)


def _pictured(random: Random, grid: Grid, things: int | None = None) -> Scene:
    """One to three things, of medium size mostly, and now and then of one shape."""
    count = random.choices((1, 2, 3), (5, 5, 1))[0] if things is None else things
    while True:
        scene = random_scene(random, grid, count)
        told = [t if random.random() < 0.3 else replace(t, size="medium") for t in scene.things]
        if len(told) == 2 and random.random() < 0.12:
            told[1] = replace(told[1], shape=told[0].shape)
        scene = replace(scene, things=tuple(told))
        if scene.fits(grid):
            return scene


def _change(scene: Scene, random: Random, before: Scene | None = None) -> tuple[str, Scene]:
    """What is asked for, and what becomes of the scene; no thing that is new since `before` is changed again."""
    kinds = list(_ASKED["changes"])
    old = [index for index, thing in enumerate(scene.things) if before is None or thing in before.things]
    kind = random.choice(kinds if old else ["background", "add"])
    form = random.choice(_ASKED["changes"][kind])
    if kind == "background":
        after = replace(scene, background=random_background(random, plain=0.65))
        words = {"pattern": pattern(after.background, random), "background": background(after.background, random)}
        return form.format(**words), after
    if kind == "add":
        thing = settled(replace(_any_thing(random), place=random.choice(tuple(PLACES))), random)
        return form.format(new=named(thing, random), at=_at(thing.place, random)), replace(
            scene, things=(*scene.things, thing)
        )
    index = random.choice(old)
    thing = scene.things[index]
    which = (
        "it" if len(scene.things) == 1 and before is None and random.random() < 0.5 else _which(thing, random, scene)
    )
    if kind == "remove":
        return form.format(which=which), scene.without_thing(index)
    words, changed = _changed(kind, thing, random)
    return form.format(which=which, **words), scene.with_thing(index, changed)


def _changed(kind: str, thing: Thing, random: Random) -> tuple[dict[str, str], Thing]:
    match kind:
        case "recolour":
            colour = random.choice(palette.NAMES)
            return {"colour": colour}, replace(thing, colour=colour)
        case "move":
            place = random.choice([name for name in PLACES if name != thing.place])
            return {"at": _at(place, random), "to": place}, replace(thing, place=place)
        case "reshape":
            shape = random.choice([name for name in shapes.NAMES if name != thing.shape])
            return {"shape": shape}, replace(thing, shape=shape)
        case _:
            size = "large" if kind == "enlarge" else "small"
            return {}, replace(thing, size=size)


def _which(thing: Thing, random: Random, scene: Scene | None = None) -> str:
    """Enough to tell it from others."""
    alike = scene is not None and sum(other.shape == thing.shape for other in scene.things) > 1
    if alike:
        return random.choice((f"the {thing.colour} {thing.shape}", f"the {thing.place} {thing.shape}"))
    return f"the {thing.colour} {thing.shape}" if random.random() < 0.25 else f"the {thing.shape}"


def _at(place: str, random: Random) -> str:
    return random.choice(_ASKED["at"]).format(place)
