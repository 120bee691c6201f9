"""Changes to a picture's scene, and how a client would ask for them.

A change keeps everything that it does not name, to the pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

from training.worlds import palette, shapes
from training.worlds.pictures import captions
from training.worlds.pictures.scene import Scene, Thing, random_background, random_thing, settled
from training.worlds.vocabulary import PLACES, SIZES

Edit: TypeAlias = Callable[[Scene, Random], tuple[str, Scene]]
"""What is asked for, and what the scene becomes."""

_RECOLOURING: Final = (
    "make {which} {colour}",
    "make {which} {colour}",
    "change {which} to {colour}",
    "turn {which} {colour}",
    "paint {which} {colour}",
    "recolor {which} to {colour}",
    "change the color of {which} to {colour}",
    "{which} should be {colour}",
)
_REPLACING: Final = ("change the background to {}", "replace the background with {}", "put it on {}")
_REPLACING_PLAIN: Final = (
    "change the background to {}",
    "make the background {}",
    "{} background",
    "turn the background {}",
)


def recolour(scene: Scene, random: Random) -> tuple[str, Scene]:
    index, thing = _one_of(scene, random)
    taken = {thing.colour, *scene.background.colours}
    changed = settled(replace(thing, colour=random.choice([c for c in palette.NAMES if c not in taken])), random)
    which, colour = _which(thing, random), captions.word(changed.colour, random)
    text = random.choice(_RECOLOURING).format(which=which, colour=colour)
    return text, scene.with_thing(index, replace(changed, shift=thing.shift))


def move(scene: Scene, random: Random) -> tuple[str, Scene]:
    index, thing = _one_of(scene, random)
    target = random.choice([name for name in PLACES if name != thing.place])
    which, to = _which(thing, random), captions.place(target, random)
    toward = to.replace("in the ", "to the ", 1).replace("on the ", "to the ", 1).replace("at the ", "to the ", 1)
    text = random.choice(
        (f"move {which} {toward}", f"move {which} {toward}", f"put {which} {to}", f"place {which} {to}")
    )
    return text, scene.with_thing(index, replace(thing, place=target))


def remove(scene: Scene, random: Random) -> tuple[str, Scene]:
    index, thing = _one_of(scene, random)
    verb = random.choice(("remove", "remove", "delete", "erase", "take away", "get rid of"))
    return f"{verb} {_which(thing, random)}", scene.without_thing(index)


def replace_background(scene: Scene, random: Random) -> tuple[str, Scene]:
    background = random_background(random, plain=0.8)
    while background.colours == scene.background.colours:
        background = random_background(random, plain=0.8)
    told = captions.background(background, random)
    options = [form.format(told) for form in _REPLACING]
    if background.second is None:
        colour = captions.word(background.colour, random)
        options = [*(form.format(colour) for form in _REPLACING_PLAIN), *options]
    return random.choice(options), replace(scene, background=background)


def add(scene: Scene, random: Random) -> tuple[str, Scene]:
    thing = random_thing(random)
    named, at = captions.name(thing, random), captions.place(thing.place, random)
    verb = random.choice(("add", "add", "draw", "put", "place"))
    return f"{verb} {named} {at}", replace(scene, things=(*scene.things, thing))


def reshape(scene: Scene, random: Random) -> tuple[str, Scene]:
    index, thing = _one_of(scene, random)
    shape = random.choice([name for name in shapes.NAMES if name not in {t.shape for t in scene.things}])
    told = captions.with_article(captions.word(shape, random))
    text = f"{random.choice(('turn', 'change', 'transform'))} {_which(thing, random)} into {told}"
    return text, scene.with_thing(index, replace(thing, shape=shape))


def resize(scene: Scene, random: Random) -> tuple[str, Scene]:
    index, thing = _one_of(scene, random)
    order = tuple(SIZES)
    here = order.index(thing.size)
    to = random.choice([step for step in (here - 1, here + 1) if 0 <= step < len(order)])
    word = random.choice(("bigger", "larger") if to > here else ("smaller", "smaller"))
    return f"make {_which(thing, random)} {word}", scene.with_thing(index, replace(thing, size=order[to]))


EDITS: Final[Mapping[str, tuple[Edit, float]]] = {
    "recolour": (recolour, 0.22),
    "move": (move, 0.22),
    "remove": (remove, 0.12),
    "background": (replace_background, 0.14),
    "add": (add, 0.18),
    "reshape": (reshape, 0.08),
    "resize": (resize, 0.04),
}
"""With how often each is practised."""


def _one_of(scene: Scene, random: Random) -> tuple[int, Thing]:
    index = random.randrange(len(scene.things))
    return index, scene.things[index]


def _which(thing: Thing, random: Random) -> str:
    """Shapes are unique in a scene, so `the star` is enough; a colour may be named as well."""
    shape = captions.word(thing.shape, random)
    return f"the {captions.word(thing.colour, random)} {shape}" if random.random() < 0.3 else f"the {shape}"
