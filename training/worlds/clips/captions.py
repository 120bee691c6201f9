"""Tells a scene of the world of clips in plain English, in many ways.

What a caption leaves out has a default: a thing of medium size, on white.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

from training.worlds.clips.scene import COLOURS, MOTIONS, SHAPES, Scene, random_scene
from training.worlds.pictures.captions import DEFAULT_BACKGROUND, with_article

_SIZE_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "small": ("small ", "small ", "little ", "tiny "),
    "medium": ("",),
    "large": ("large ", "big ", "big ", "huge "),
}
_SHAPE_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "circle": ("circle", "circle", "ball", "disc"),
    "square": ("square", "square", "box"),
    "cross": ("cross", "plus sign"),
    "ring": ("ring", "ring", "hoop"),
}
_SIDEWAYS: Final = (
    *("moves {side}", "moves {side}", "moves to the {side}", "slides {side}", "slides to the {side}", "goes {side}"),
    *("travels to the {side}", "moving {side}", "moving to the {side}"),
    *("moves from {other} to {side}", "drifts from {other} to {side}"),
)
_MOVES: Final[Mapping[str, Sequence[str]]] = {
    "left": tuple(form.format(side="left", other="right") for form in _SIDEWAYS),
    "right": tuple(form.format(side="right", other="left") for form in _SIDEWAYS),
    "up": ("moves up", "moves up", "moves upwards", "rises", "rises", "goes up", "moving up", "rising", "flies up"),
    "down": ("moves down", "moves down", "moves downwards", "falls", "falls", "sinks", "goes down", "moving down"),
    "still": ("stands still", "stays still", "does not move", "rests", "stays in place", "stands still"),
    "grow": ("grows", "grows", "gets bigger", "gets larger", "growing", "becomes bigger"),
    "shrink": ("shrinks", "shrinks", "gets smaller", "shrinking", "becomes smaller"),
}
_BEHIND: Final = (
    *("on a {} background", "on a {} background", "on {}"),
    *("in front of a {} background", "against a {} background", "over a {} background"),
)
_OPENINGS: Final = (*("",) * 10, "a video of ", "a clip of ", "an animation of ", "a movie of ", "show ", "animate ")
_ENDINGS: Final = (*("",) * 8, ".", ".", ", please", ", simple animation", ", flat design", ", smooth motion")
_BARE: Final = ("it {}", "the thing {}", "the shape {}", "the {shape} {}", "{}")
"""What is said about a picture that shows the rest."""


def caption(scene: Scene, random: Random) -> str:
    """All that the scene is."""
    thing = with_article(random.choice(_SIZE_WORDS[scene.size]) + f"{scene.colour} {_shape(scene, random)}")
    moves = random.choice(_MOVES[scene.motion])
    behind = random.choice(_BEHIND).format(scene.background).replace("a orange", "an orange")
    if scene.background == DEFAULT_BACKGROUND and random.random() < 0.5:
        told = f"{thing} {moves}"
    elif random.random() < 0.15:
        return _sentence(f"{behind}, {thing} {moves}" + random.choice(_ENDINGS), random)
    elif random.random() < 0.15:
        told = f"{thing} {behind}, it {moves}"
    else:
        told = f"{thing} {moves} {behind}"
    return _sentence(random.choice(_OPENINGS) + told + random.choice(_ENDINGS), random)


def motion_alone(scene: Scene, random: Random) -> str:
    """What happens to a thing that is seen anyway."""
    moves = random.choice(_MOVES[scene.motion])
    return _sentence(random.choice(_BARE).format(moves, shape=_shape(scene, random)), random)


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
    return random.choice(_SHAPE_WORDS.get(scene.shape, (scene.shape,)))


def _sentence(text: str, random: Random) -> str:
    return text[0].upper() + text[1:] if random.random() < 0.3 else text
