"""Tells a scene of the world of clips in plain English, in many ways.

What a caption leaves out has a default: a thing of medium size, on white.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import yaml

from deployments.wording.thing import with_article
from training.worlds.clips.scene import COLOURS, MOTIONS, SHAPES, Scene, random_scene
from training.worlds.pictures.captions import DEFAULT_BACKGROUND
from training.worlds.vocabulary import CLIPS

_PHRASES: Final[Mapping[str, Sequence[str]]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_OPPOSITE: Final = {"left": "right", "right": "left"}


def caption(scene: Scene, random: Random) -> str:
    """All that the scene is."""
    thing = with_article(
        f"{random.choice(CLIPS['sizes'][scene.size]['words'])} {scene.colour} {_shape(scene, random)}".strip()
    )
    moves = _moves(scene, random)
    behind = random.choice(_PHRASES["behind"]).format(scene.background).replace("a orange", "an orange")
    if scene.background == DEFAULT_BACKGROUND and random.random() < 0.5:
        told = f"{thing} {moves}"
    elif random.random() < 0.15:
        return _sentence(f"{behind}, {thing} {moves}" + random.choice(_PHRASES["endings"]), random)
    elif random.random() < 0.15:
        told = f"{thing} {behind}, it {moves}"
    else:
        told = f"{thing} {moves} {behind}"
    return _sentence(random.choice(_PHRASES["openings"]) + told + random.choice(_PHRASES["endings"]), random)


def motion_alone(scene: Scene, random: Random) -> str:
    """What happens to a thing that is seen anyway."""
    moves = _moves(scene, random)
    return _sentence(random.choice(_PHRASES["bare"]).format(moves, shape=_shape(scene, random)), random)


def sayings() -> Iterator[str]:
    """What the tokenizer learns from: the same in every run."""
    random = Random(0)
    for _ in range(4000):
        scene = random_scene(random)
        yield caption(scene, random)
        yield motion_alone(scene, random)
    for word in (*COLOURS, *MOTIONS, *SHAPES):
        yield f"a {word} {word}, the {word}"


def _shape(scene: Scene, random: Random) -> str:
    return random.choice(CLIPS["shapes"][scene.shape])


def _moves(scene: Scene, random: Random) -> str:
    return random.choice(CLIPS["motions"][scene.motion]).format(side=scene.motion, other=_OPPOSITE.get(scene.motion))


def _sentence(text: str, random: Random) -> str:
    return text[0].upper() + text[1:] if random.random() < 0.3 else text
