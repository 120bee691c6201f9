"""What people ask for beyond captions: up to five things, equal ones, several changes at once, and parts of pictures.

Said as `deployments/wording` says what it reads in people's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from deployments.wording.thing import at, with_article
from training.lessons.lesson import Lesson
from training.worlds import palette, shapes
from training.worlds.pictures import captions
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
_OF_ALL: Final = {"recolour": "colour", "reshape": "shape", "enlarge": "size", "shrink": "size"}
"""What of all things is changed at once, which are `both` then, however many; they may be removed, too."""
_MOST_EDITED: Final = 4
"""Things in a picture that was changed."""


def say(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """Text to image."""
    scene = people_scene(random, grid, held_out)
    return Lesson(captions.caption(scene, random), scene)


def ask(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """One to three changes of a picture."""
    for _ in range(_TRIES):
        before = _pictured(random, grid)
        text, after = _change(before, random, before)
        for _ in range(random.choices((0, 1, 2), (3, 6, 1))[0]):
            more, after = _change(after, random, before)
            text += f" and {more}"
        if before != after and (before.things or after.things) and _may_be(after, grid, held_out):
            return Lesson(text, after, (before,))
    raise RuntimeError(f"no change was found for a canvas of {grid} tokens")


def join(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """The thing of one picture in the other, which keeps its own, or alone there; or all of one on the background."""
    while True:
        source = _pictured(random, grid, random.choices((1, 2), (4, 1))[0])
        into = _pictured(random, grid, random.choices((0, 1, 2), (1, 5, 1))[0])
        swapped = random.random() < 0.5
        there, here = ("image 2", "image 1") if swapped else ("image 1", "image 2")
        kind = random.choices(tuple(_ASKED["joins"]), (5, 2, 2))[0]
        old = source.things[0]
        placed = random.random() < 0.75
        thing = replace(old, place=random.choice(tuple(PLACES))) if placed else old
        words = {"which": _which(old, random, source), "at": at(thing.place) if placed else ""}
        text = _ASKED["joins"][kind].format(there=there, here=here, **words).strip()
        if kind == "backdrop":
            after = replace(source, background=into.background)
        else:
            after = replace(into, things=(*into.things, thing) if kind == "join" else (thing,))
            if random.random() < 0.2:
                more, changed = _changed(random.choice(("recolour", "enlarge", "shrink")), thing, random)
                text += f" and {more.format(which=f'the {thing.shape}')}"
                after = after.with_thing(len(after.things) - 1, changed)
        if _may_be(after, grid, held_out):
            return Lesson(text, after, (into, source) if swapped else (source, into))


def people_scene(random: Random, grid: Grid, held_out: bool = False) -> Scene:
    """Two to four things anywhere; or things as they are arranged where no places are said, of which some are equal."""
    while True:
        kind = random.choices(("placed", "unplaced", "counted"), (25, 20, 55))[0]
        if kind == "placed":
            return random_scene(random, grid, random.choices((2, 3, 4), (3, 3, 4))[0], held_out)
        background = random_background(random)
        if random.random() < 0.3:
            background = Background(captions.DEFAULT_BACKGROUND, shade=background.shade)
        things = _unplaced(random) if kind == "unplaced" else _counted(random)
        scene = Scene(_arranged(things, random), background)
        if scene.fits(grid, _CLOSE) and scene.held_out == held_out:
            return scene


def _unplaced(random: Random) -> list[Thing]:
    """Two or three that differ; in the same shape or the same colour, now and then."""
    things = [_any_thing(random) for _ in range(random.choices((2, 3), (6, 4))[0])]
    same = random.random()
    if same < 0.15:
        return [replace(thing, shape=things[0].shape) for thing in things]
    return [replace(thing, colour=things[0].colour) for thing in things] if same < 0.3 else things


def _counted(random: Random) -> list[Thing]:
    """Two to five equal ones, some with one or two of another kind; five are small."""
    count = random.choices((2, 3, 4, 5), (2, 3, 4, 5))[0]
    things = [_any_thing(random)] * count
    if count < 5 and random.random() < 0.25:
        others = [_any_thing(random)] * random.randint(1, min(2, 5 - count))
        things = things + others if random.random() < 0.7 else others + things
    return [replace(thing, size="small") for thing in things] if len(things) > 4 else things


def _any_thing(random: Random) -> Thing:
    size = random.choices(tuple(SIZES), (2, 5, 2))[0]
    return Thing(random.choice(shapes.NAMES), random.choice(palette.NAMES), size)


def _arranged(things: Sequence[Thing], random: Random) -> tuple[Thing, ...]:
    """Where `arranged` has them, each a little off."""
    placed: list[Thing] = []
    for thing, where in zip(things, arranged(len(things)), strict=True):
        moved = settled(replace(thing, place=where.place), random)
        across, down = (here + jitter for here, jitter in zip(where.shift, moved.shift, strict=True))
        placed.append(replace(moved, shift=(across, down)))
    return tuple(placed)


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


def _may_be(scene: Scene, grid: Grid, held_out: bool) -> bool:
    return len(scene.things) <= _MOST_EDITED and scene.fits(grid) and scene.held_out == held_out


def _change(scene: Scene, random: Random, before: Scene) -> tuple[str, Scene]:
    """What is asked for, and what becomes of the scene, which was `before` at first. The background changes once."""
    shares = dict(_ASKED["shares"])
    if scene.background != before.background:
        del shares["background"]
    if len(scene.things) < 2:
        del shares["keep"]
    kind = random.choices(tuple(shares), tuple(shares.values()))[0]
    if kind == "background":
        after = replace(scene, background=random_background(random, plain=0.65))
        return _ASKED["changes"][kind].format(background=captions.background(after.background, random)), after
    if kind == "add" or not scene.things:
        thing = settled(replace(_any_thing(random), place=random.choice(tuple(PLACES))), random)
        text = _ASKED["changes"]["add"].format(thing=captions.name(thing, random), at=at(thing.place))
        return text, replace(scene, things=(*scene.things, thing))
    if kind in (*_OF_ALL, "remove") and len(scene.things) > 1 and random.random() < _called_both(scene):
        return _change_all(kind, scene, random)
    index = random.randrange(len(scene.things))
    thing = scene.things[index]
    alone = scene is before and len(scene.things) == 1  # not what a change left as it was
    which = "it" if alone and random.random() < 0.4 else _which(thing, random, scene)
    if kind in ("remove", "keep"):
        left = scene.without_thing(index) if kind == "remove" else replace(scene, things=(thing,))
        return _ASKED["changes"][kind].format(which=which), left
    text, changed = _changed(kind, thing, random)
    return text.format(which=which), scene.with_thing(index, changed)


def _called_both(scene: Scene) -> float:
    """How likely."""
    return 0.4 if _same_shape(scene) and len(scene.things) == 2 else 0.08


def _same_shape(scene: Scene) -> bool:
    return len({thing.shape for thing in scene.things}) == 1


def _change_all(kind: str, scene: Scene, random: Random) -> tuple[str, Scene]:
    named = scene.things[0].shape if _same_shape(scene) and random.random() < 0.8 else "thing"
    if kind == "remove":
        text, things = _ASKED["changes"][kind], ()
    else:
        text, changed = _changed(kind, scene.things[0], random)
        value = {_OF_ALL[kind]: getattr(changed, _OF_ALL[kind])}
        things = tuple(replace(thing, **value) for thing in scene.things)
    return text.format(which=f"both {named}"), replace(scene, things=things)


def _changed(kind: str, thing: Thing, random: Random) -> tuple[str, Thing]:
    """What is asked for, still without the thing's name, and what becomes of it."""
    words: dict[str, str] = {}
    if kind == "recolour":
        thing = replace(thing, colour=random.choice(palette.NAMES))
        words["colour"] = thing.colour
    elif kind == "move":
        thing = replace(thing, place=random.choice([place for place in PLACES if place != thing.place]))
        words["to"] = thing.place
    elif kind == "reshape":
        thing = replace(thing, shape=random.choice([shape for shape in shapes.NAMES if shape != thing.shape]))
        words["shape"] = with_article(thing.shape)
    elif kind in ("bigger", "smaller"):
        order = tuple(SIZES)
        step = order.index(thing.size) + (1 if kind == "bigger" else -1)
        thing = replace(thing, size=order[min(max(step, 0), len(order) - 1)])
    else:
        thing = replace(thing, size="large" if kind == "enlarge" else "small")
    return _ASKED["changes"][kind].format(which="{which}", **words), thing


def _which(thing: Thing, random: Random, scene: Scene) -> str:
    """Enough to tell it from others."""
    alike = any(_alike(thing, other) for other in scene.things if other is not thing)
    if alike or random.random() < 0.1:
        coloured, placed = f"the {thing.colour} {thing.shape}", f"the {thing.shape} {at(thing.place)}"
        return random.choice((coloured, coloured, placed))
    if len(scene.things) > 1 and random.random() < 0.12:
        own = sum(other.colour == thing.colour for other in scene.things) == 1
        return f"the {thing.colour} thing" if own and random.random() < 0.5 else f"the thing {at(thing.place)}"
    return f"the {thing.colour} {thing.shape}" if random.random() < 0.25 else f"the {thing.shape}"


def _alike(thing: Thing, other: Thing) -> bool:
    return thing.shape == other.shape
