"""Changes to a picture's scene, and how a client would ask for them.

A change keeps everything that it does not name, to the pixel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import yaml

from deployments.wording.thing import with_article
from training.worlds import palette, shapes
from training.worlds.pictures import captions
from training.worlds.pictures.scene import Scene, Thing, random_background, random_thing, settled
from training.worlds.vocabulary import PLACES, SIZES

Edit: TypeAlias = Callable[[Scene, Random], tuple[str, Scene]]
"""What is asked for, and what the scene becomes."""
_ThingEdit: TypeAlias = Callable[[Scene, Thing, Random], tuple[str, Thing | None]]
"""The same of one of its things, which becomes another or None."""

_ASKED: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def _of_a_thing(edit: _ThingEdit) -> Edit:
    def change(scene: Scene, random: Random) -> tuple[str, Scene]:
        index = random.randrange(len(scene.things))
        text, thing = edit(scene, scene.things[index], random)
        return text, scene.without_thing(index) if thing is None else scene.with_thing(index, thing)

    return change


def _recolour(scene: Scene, thing: Thing, random: Random) -> tuple[str, Thing]:
    taken = {thing.colour, *scene.background.colours}
    changed = settled(replace(thing, colour=random.choice([c for c in palette.NAMES if c not in taken])), random)
    which, colour = _which(thing, random), captions.word(changed.colour, random)
    text = random.choice(_ASKED["recolour"]["words"]).format(which=which, colour=colour)
    return text, replace(changed, shift=thing.shift)


def _move(scene: Scene, thing: Thing, random: Random) -> tuple[str, Thing]:
    target = random.choice([name for name in PLACES if name != thing.place])
    which, at = _which(thing, random), captions.place(target, random)
    toward = re.sub("^(in|on|at) the ", "to the ", at)
    return random.choice(_ASKED["move"]["words"]).format(which=which, at=at, toward=toward), replace(
        thing, place=target
    )


def _remove(scene: Scene, thing: Thing, random: Random) -> tuple[str, None]:
    return f"{random.choice(_ASKED['remove']['words'])} {_which(thing, random)}", None


def _reshape(scene: Scene, thing: Thing, random: Random) -> tuple[str, Thing]:
    shape = random.choice([name for name in shapes.NAMES if name not in {t.shape for t in scene.things}])
    told = with_article(captions.word(shape, random))
    verb = random.choice(_ASKED["reshape"]["words"])
    return f"{verb} {_which(thing, random)} into {told}", replace(thing, shape=shape)


def _resize(scene: Scene, thing: Thing, random: Random) -> tuple[str, Thing]:
    order = tuple(SIZES)
    here = order.index(thing.size)
    to = random.choice([step for step in (here - 1, here + 1) if 0 <= step < len(order)])
    word = random.choice(_ASKED["resize"]["larger" if to > here else "smaller"])
    return f"make {_which(thing, random)} {word}", replace(thing, size=order[to])


def _replace_background(scene: Scene, random: Random) -> tuple[str, Scene]:
    background = random_background(random, plain=0.8)
    while background.colours == scene.background.colours:
        background = random_background(random, plain=0.8)
    asked, told = _ASKED["background"], captions.background(background, random)
    options = [form.format(told) for form in asked["words"]]
    if background.second is None:
        colour = captions.word(background.colour, random)
        options = [*(form.format(colour) for form in asked["plain"]), *options]
    return random.choice(options), replace(scene, background=background)


def _add(scene: Scene, random: Random) -> tuple[str, Scene]:
    thing = random_thing(random)
    named, at = captions.name(thing, random), captions.place(thing.place, random)
    return f"{random.choice(_ASKED['add']['words'])} {named} {at}", replace(scene, things=(*scene.things, thing))


def _which(thing: Thing, random: Random) -> str:
    """Shapes are unique in a scene, so `the star` is enough; a colour may be named as well."""
    shape = captions.word(thing.shape, random)
    return f"the {captions.word(thing.colour, random)} {shape}" if random.random() < 0.3 else f"the {shape}"


EDITS: Final[Mapping[str, Edit]] = {
    "recolour": _of_a_thing(_recolour),
    "move": _of_a_thing(_move),
    "remove": _of_a_thing(_remove),
    "background": _replace_background,
    "add": _add,
    "reshape": _of_a_thing(_reshape),
    "resize": _of_a_thing(_resize),
}
SHARES: Final = tuple(_ASKED[name]["share"] for name in EDITS)
"""How often each is practised."""
