"""The kinds of lessons with pictures, and how each is made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

from training.lessons.edits import EDITS, SHARES
from training.lessons.lesson import Lesson
from training.lessons.sayings import ask, join, say
from training.worlds import palette, shapes
from training.worlds.pictures import captions
from training.worlds.pictures.scene import (
    Background,
    Box,
    Grid,
    Mask,
    Scene,
    Thing,
    random_background,
    random_scene,
    settled,
)

_TRIES: Final = 200
_MOST_EDITED: Final = 3
"""Things in a picture that was changed."""
_NOTHING: Final = ("", "", "nothing", "background", "empty background", "just the background")
_COMBINING: Final = (
    "put {what} from {there} on the background of {here}",
    "{what} from {there} on the background of {here}",
    "place {what} of {there} on the background from {here}",
    "combine {what} from {there} with the background of {here}",
    "use the background of {here} for {what} of {there}",
)


Teacher: TypeAlias = Callable[[Random, Grid, bool], Lesson]
"""Makes a lesson for a canvas; the flag tells whether its target is one of those held out for grading."""


def tell(random: Random, grid: Grid, held_out: bool = False, things: int | None = None) -> Lesson:
    """Text to image, with `things` things, or else one to three; a scene without any can't be held out."""
    if things is None:
        things = random.choices((1, 2, 3), (12, 7, 2))[0]
    scene = random_scene(random, grid, things, held_out)
    if not held_out and random.random() < 0.1:
        scene = replace(scene, background=_default_background(scene))
        if not scene.fits(grid) or scene.held_out:
            return tell(random, grid, things=things)
    return Lesson(captions.caption(scene, random), scene)


def change(random: Random, grid: Grid, held_out: bool = False, kind: str | None = None) -> Lesson:
    """Edits of one picture; `kind` is a key of EDITS, or None for any."""
    for _ in range(_TRIES):
        # Half of those held out are so from the start: a move changes no colour.
        scene = random_scene(random, grid, random.choices((1, 2, 3), (6, 3, 1))[0], held_out and random.random() < 0.5)
        asked = kind or random.choices(tuple(EDITS), SHARES)[0]
        text, result = EDITS[asked](scene, random)
        distinct = len({thing.shape for thing in result.things}) == len(result.things)
        kept_apart = result.held_out == held_out or asked == "remove"
        if distinct and len(result.things) <= _MOST_EDITED and result.fits(grid) and kept_apart:
            return Lesson(text, result, (scene,))
    raise RuntimeError(f"no edit of kind {kind} was found for a canvas of {grid} tokens")


def combine(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """Two pictures: the thing of one on the background of the other."""
    while True:
        first, second = (random_scene(random, grid, 1, plain=0.6) for _ in range(2))
        swapped = random.random() < 0.35
        source, behind = (second, first) if swapped else (first, second)
        target = Scene(source.things, behind.background)
        if target.fits(grid) and target.held_out == held_out:
            break
    named = captions.word(source.things[0].shape, random)
    what = random.choice(("the object", f"the {named}", "the shape", "the thing"))
    if random.random() < 0.5:
        picture = random.choice(("image", "image", "picture"))
        names = f"{picture} 1", f"{picture} 2"
    else:
        picture = random.choice(("image", "picture"))
        names = f"the first {picture}", f"the second {picture}"
    there, here = reversed(names) if swapped else names
    return Lesson(random.choice(_COMBINING).format(what=what, there=there, here=here), target, (first, second))


def lay_out(random: Random, grid: Grid, held_out: bool = False, rows: int | None = None) -> Lesson:
    """A prompt that ends with a table of boxes."""
    count = rows or random.choice((1, 1, 2, 3))
    while True:
        background = random_background(random, plain=0.85)
        if random.random() < 0.1:
            background = Background(captions.DEFAULT_BACKGROUND, shade=background.shade)
        scene = Scene(_boxed_things(random, grid, count), background)
        if scene.fits(grid) and scene.held_out == held_out:
            return Lesson(f"{_setting(scene, random)} {table(scene.things, random)}".strip(), scene)


def fill(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """A masked part of a picture painted anew, with a thing in its middle."""
    while True:
        scene = random_scene(random, grid, random.choice((0, 1, 1, 2)))
        mask = Mask(_random_box(random, grid), random.random() < 0.3)
        box = _shrunk(mask.box, 0.75) if mask.round else mask.box
        thing = settled(Thing(random.choice(shapes.NAMES), random.choice(palette.NAMES), box=box), random)
        target = Scene((thing,), scene.background)
        if target.fits(grid) and target.held_out == held_out:
            named = captions.name(thing, random)
            prompt = random.choice((named, named, f"add {named}", captions.caption(target, random)))
            return Lesson(prompt, target, (scene,), mask)


def erase(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """A masked part painted anew with the background alone; in half of them, a whole thing was there."""
    scene = random_scene(random, grid, random.choice((1, 1, 2)), held_out)
    mask = Mask(_random_box(random, grid), random.random() < 0.3)
    left = replace(scene, things=())
    if held_out or random.random() < 0.5:
        gone = random.randrange(len(scene.things))
        mask = Mask(_around(scene.things[gone], grid, random.uniform(1.1, 1.4)), random.random() < 0.3)
        left = scene.without_thing(gone)
    return Lesson(random.choice(_NOTHING), left, (scene,), mask)


def extend(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """A part of a picture is kept, and the background goes on around it; a thing that is cut off is completed."""
    while True:
        scene = random_scene(random, grid, random.choice((1, 1, 2)) if not held_out else 1, held_out)
        kept = _random_box(random, grid, largest=850)
        # A mere corner of a thing does not say what it is.
        seen, hinted = (
            tuple(thing for thing in scene.things if _touches(_around(thing, grid, share), kept))
            for share in (0.4, 1.0)
        )
        if seen == hinted and (seen or not held_out):
            return Lesson(random.choice(_NOTHING), replace(scene, things=seen), (scene,), Mask(kept, outside=True))


def trace(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """Edges that are to be kept: things anywhere, also where tokens cut them otherwise; only their names are told."""
    count = random.choice((1, 1, 2, 3))
    while True:
        scene = Scene(_boxed_things(random, grid, count, astray=0.5), random_background(random))
        if scene.fits(grid) and scene.held_out == held_out:
            return Lesson(captions.caption(scene, random), scene, placed=True)


def resemble(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """A picture instead of words."""
    scene = random_scene(random, grid, random.choice((1, 1, 2)), held_out)
    return Lesson("" if random.random() < 0.7 else captions.caption(scene, random), scene, (scene,), placed=True)


def anything(random: Random, grid: Grid, held_out: bool = False) -> Lesson:
    """Prompts of no meaning here, or a colour left open: any picture of the world will do."""
    scene = random_scene(random, grid, 1)
    if random.random() < 0.5:
        # Only the colour is open: the rest has the defaults of every caption, or those would not be learnt.
        thing = replace(scene.things[0], size="medium", place="center")
        usual = Scene((thing,), _default_background(scene))
        if usual.fits(grid) and not usual.held_out:
            return Lesson(f"a {captions.word(thing.shape, random)}", usual)
    words = (_word(random) for _ in range(random.randint(1, 12)))
    return Lesson(" ".join(words), scene)


LESSONS: Final[Mapping[str, Teacher]] = {
    teacher.__name__.replace("_", " "): teacher
    for teacher in (tell, change, combine, lay_out, fill, erase, extend, trace, resemble, anything, say, ask, join)
}


def table(things: Sequence[Thing], random: Random) -> str:
    """The boxes as JSON, in the form that the service takes them."""
    naming = random.choice(("{shape}_{index}", "{shape}", "object_{index}", "{index}"))
    ids = (naming.format(shape=thing.shape, index=index) for index, thing in enumerate(things, start=1))
    rows = [
        {"id": id_, "bbox": thing.box, "desc": captions.name(thing, random)}
        for id_, thing in zip(ids, things, strict=True)
    ]
    return json.dumps(rows, separators=(",", ":") if random.random() < 0.2 else None)


def _setting(scene: Scene, random: Random) -> str:
    behind = captions.background(scene.background, random)
    if scene.background.colours == (captions.DEFAULT_BACKGROUND,) and random.random() < 0.5:
        return random.choice(("", "a picture", "shapes"))
    return random.choice((behind, f"shapes on {behind}", f"a picture with {behind}", f"on {behind}"))


def _default_background(scene: Scene) -> Background:
    return Background(captions.DEFAULT_BACKGROUND, shade=scene.background.shade)


def _boxed_things(random: Random, grid: Grid, count: int, astray: float | None = None) -> tuple[Thing, ...]:
    """Of different shapes, up to `astray` tokens off their places, or as far as any thing."""
    things = []
    for shape in random.sample(shapes.NAMES, count):
        thing = settled(Thing(shape, random.choice(palette.NAMES), box=_random_box(random, grid)), random)
        if astray is not None:
            thing = replace(thing, shift=(random.uniform(-1, 1) * astray, random.uniform(-1, 1) * astray))
        things.append(thing)
    return tuple(things)


def _random_box(random: Random, grid: Grid, largest: int = 600) -> Box:
    """Not too flat, with room for a thing that can be recognised; in units, tens or fifties."""
    step = random.choice((1, 10, 50))
    height, width = (random.randint(max(250, 2500 // side), largest) // step * step for side in grid)
    top, left = random.randint(0, 1000 - height) // step * step, random.randint(0, 1000 - width) // step * step
    return top, left, top + height, left + width


def _around(thing: Thing, grid: Grid, factor: float) -> Box:
    """The box of a thing, or one larger by `factor`, within the canvas."""
    x, y, radius = thing.circle(grid)
    (rows, columns), reach = grid, radius * factor
    edges = ((y - reach) / rows, (x - reach) / columns, (y + reach) / rows, (x + reach) / columns)
    top, left, bottom, right = (min(max(round((0.5 + edge) * 1000), 0), 1000) for edge in edges)
    return top, left, bottom, right


def _touches(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _shrunk(box: Box, factor: float) -> Box:
    """About its middle."""
    top, left, bottom, right = box
    down, across = round((bottom - top) * (1 - factor) / 2), round((right - left) * (1 - factor) / 2)
    return top + down, left + across, bottom - down, right - across


def _word(random: Random) -> str:
    return "".join(random.choice("aabcdeefghiijklmnooprsttuvwyz") for _ in range(random.randint(2, 9)))
