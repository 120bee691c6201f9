"""Picture prompts and details that fit them, made up by rules: what the bundled rewriter learns from.

A detail speaks of the composition, the light, the texture or the background; it fits the subject, the time of day and
the medium, and never repeats what the prompt settles already. Some prompts are of words that no rule knows, so that the
rewriter learns to leave the words of others alone. `prompts.yaml` has all phrases.
"""

from __future__ import annotations

import itertools
import random
import string
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_PHRASES: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_SCENES: Final[list[dict[str, list[str]]]] = list(_PHRASES["scenes"].values())
_UNKNOWN: Final[dict[str, list[str]]] = _PHRASES["unknown"]
_SHAPE: Final[dict[str, list[str]]] = _PHRASES["shape"]
_LIGHT: Final[dict[str, list[str]]] = _PHRASES["light"]
_MEDIA: Final[dict[str, list[str]]] = _PHRASES["media"]


@dataclass(frozen=True, slots=True)
class Example:
    prompt: str
    continuation: str


def details() -> frozenset[str]:
    """Every detail phrase there is."""
    kinds = (*_SCENES, _UNKNOWN, _SHAPE)
    lists = [kind[aspect] for kind in kinds for aspect in ("composition", "texture", "background")]
    return frozenset(itertools.chain(*lists, *_LIGHT.values(), *_MEDIA.values(), _SHAPE["light"]))


def examples(seed: int, *, held_out: bool = False) -> Iterator[Example]:
    """Endless examples. A sixteenth of all prompts is held out: nobody trains on them."""
    rng = random.Random(seed)
    shapes = list(_shapes())
    while True:
        draw = rng.random()
        if draw < 0.35:
            example = _shape(rng, shapes)
        elif draw < 0.85:
            example = _scene(rng)
        else:
            example = _unknown(rng)
        if (zlib.crc32(example.prompt.encode()) % 16 == 0) == held_out:
            yield example


def _shapes() -> Iterator[str]:
    """Plain prompts for a single shape."""
    colours, names = _SHAPE["colours"], _SHAPE["names"]
    for colour, name, other in itertools.product(colours, names, colours):
        yield f"a {colour} {name} on a {other} background"
    for colour, name, place, size in itertools.product(colours, names, _SHAPE["places"], _SHAPE["sizes"]):
        yield f"a {size} {colour} {name} at the {place}"


def _shape(rng: random.Random, shapes: Sequence[str]) -> Example:
    text = rng.choice(shapes)
    if rng.random() < 0.3:
        alone = text.split(" on ")[0].split(" at ")[0]
        text = f"{alone} {rng.choice(('and', 'next to', 'above', 'with'))} {rng.choice(shapes)}"
    background = [] if "background" in text else _SHAPE["background"]
    return _example(rng, text, (_SHAPE["composition"], _SHAPE["light"], _SHAPE["texture"], background))


def _scene(rng: random.Random) -> Example:
    kind = rng.choice(_SCENES)
    medium = rng.choice(tuple(_MEDIA)) if rng.random() < 0.5 else ""
    time = rng.choice(tuple(_LIGHT)) if rng.random() < 0.5 else ""
    setting = rng.choice(kind["settings"]) if rng.random() < 0.4 else ""
    text = " ".join(part for part in (medium, rng.choice(kind["subjects"]), setting, time) if part)
    background = [] if setting else kind["background"]
    return _example(rng, text, (kind["composition"], _LIGHT[time], _MEDIA[medium] or kind["texture"], background))


def _unknown(rng: random.Random) -> Example:
    """Letters at random, few words or many: whatever the subject is, it is none of those above."""
    words = [
        "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 8)))
        if rng.random() < 0.9
        else "".join(rng.choices(_PHRASES["marks"], k=rng.randint(1, 3)))
        for _ in range(rng.randint(1, rng.choice((3, 6, 12))))
    ]
    text = words[0]
    for word in words[1:]:
        text += rng.choice((", ", " ", " ", " ", " "))
        text += rng.choice(_PHRASES["glue"]) if rng.random() < 0.3 else word
    return _example(rng, text, (_UNKNOWN["composition"], _LIGHT[""], _UNKNOWN["texture"], _UNKNOWN["background"]))


def _example(rng: random.Random, text: str, aspects: Sequence[Sequence[str]]) -> Example:
    """`text` with two to four details, each of another aspect.

    Some prompts have a detail already, which is then not given again; one that is a sentence is followed by one.
    """
    offered = [aspect for aspect in aspects if aspect]
    if len(offered) > 2 and rng.random() < 0.2:
        text += f", {rng.choice(offered.pop(rng.randrange(len(offered))))}"
    chosen = sorted(rng.sample(range(len(offered)), rng.randint(2, len(offered))))
    continuation = ", ".join(rng.choice(offered[index]) for index in chosen)
    if rng.random() < 0.3:
        text = text[0].upper() + text[1:]
    if rng.random() < 0.2:
        return Example(f"{text}.", f" {continuation[0].upper()}{continuation[1:]}.")
    return Example(text, f", {continuation}")
