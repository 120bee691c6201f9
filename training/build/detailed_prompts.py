"""Picture prompts and details that fit them, made up by rules: what the bundled rewriter learns from.

A detail speaks of the composition, the light, the texture or the background; it fits the subject, the time of day and
the medium, and never repeats what the prompt settles already. Some prompts are of words that no rule knows, so that the
rewriter learns to leave the words of others alone.
"""

from __future__ import annotations

import itertools
import random
import string
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    prompt: str
    continuation: str


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split("|"))


@dataclass(frozen=True, slots=True)
class Kind:
    """Subjects that share their details; `settings` may follow a subject and say where it is."""

    subjects: tuple[str, ...]
    settings: tuple[str, ...]
    composition: tuple[str, ...]
    texture: tuple[str, ...]
    background: tuple[str, ...]


ANIMAL = Kind(
    _phrases(
        "a cat | a sleeping cat | a dog "
        "| a running dog | a horse | a fox | an owl | a small bird | two rabbits | an elephant"
    ),
    _phrases("in tall grass | on a wooden chair | in the snow | by a river | under a tree"),
    _phrases("eye level view | close framing | the subject slightly off center | shallow depth of field"),
    _phrases("fine detail in the fur | sharp focus on the eyes | natural colors"),
    _phrases("softly blurred background | quiet green background | out of focus leaves behind"),
)
LANDSCAPE = Kind(
    _phrases(
        "a mountain lake | a quiet beach | a forest path "
        "| a desert road | a waterfall | rolling hills | the sea | a snowy valley"
    ),
    _phrases("in autumn | in spring | after the rain | with a small boat | with a lonely tree"),
    _phrases("wide angle view | low horizon | leading lines | strong sense of depth"),
    _phrases("crisp detail in the foreground | rich natural colors | a light mist in the air"),
    _phrases("distant hills in the background | layered clouds in the sky | far trees fading into haze"),
)
CITY = Kind(
    _phrases(
        "a city street | an old house | a bridge | a busy market "
        "| a train station | a red car | a skyscraper | a narrow alley"
    ),
    _phrases("in the rain | in winter | full of people | with empty sidewalks"),
    _phrases("view from street level | strong vertical lines | wide angle view | balanced perspective"),
    _phrases("weathered stone and glass | reflections on wet pavement | fine architectural detail"),
    _phrases("rows of buildings in the background | distant skyline | blurred lights in the background"),
)
FOOD = Kind(
    _phrases(
        "a bowl of soup | a slice of cake | a cup of coffee "
        "| fresh bread | a plate of pasta | a bowl of fruit | a glass of lemonade"
    ),
    _phrases("on a wooden table | on a marble counter | on a blue plate | with mint leaves"),
    _phrases("view from above | close framing | shallow depth of field | simple arrangement"),
    _phrases("appetizing texture | fine crumbs and steam | glossy highlights"),
    _phrases("rustic kitchen background | neutral linen background | softly blurred background"),
)
PERSON = Kind(
    _phrases(
        "a portrait of a woman | an old man | a child "
        "| a dancer | a musician | a person with a hat | a chef | an astronaut"
    ),
    _phrases("in a garden | at a window | on a stage | in a library"),
    _phrases("head and shoulders framing | relaxed pose | eye level view | shallow depth of field"),
    _phrases("natural skin tones | fine fabric texture | sharp focus on the eyes"),
    _phrases("softly blurred background | plain gray background | muted background colors"),
)
THING = Kind(
    _phrases(
        "a chair | a vase of flowers | a pair of shoes "
        "| an old clock | a guitar | a robot | a paper boat | a stack of books"
    ),
    _phrases("on a shelf | on a wooden table | by a window | in an empty room"),
    _phrases("centered composition | close framing | three quarter view | plenty of empty space"),
    _phrases("realistic materials | fine surface detail | smooth matte finish"),
    _phrases("plain white background | neutral studio background | soft gradient background"),
)
UNKNOWN = Kind(
    (),
    (),
    _phrases("balanced composition | clear focus on the subject | simple arrangement"),
    _phrases("fine detail | natural colors | sharp focus"),
    _phrases("uncluttered background | softly blurred background"),
)
SHAPE = Kind(
    (),
    (),
    _phrases("centered composition | simple geometric design | plenty of empty space | balanced layout"),
    _phrases("clean crisp edges | flat matte colors | smooth surface | subtle paper grain"),
    _phrases("plain uniform background | soft gradient background"),
)
_SCENES = (ANIMAL, LANDSCAPE, CITY, FOOD, PERSON, THING)

LIGHT = {
    "": _phrases("soft natural light | gentle side light | warm afternoon light | diffuse daylight"),
    "at night": _phrases("pale moonlight | glowing lamps | deep shadows | cool blue light"),
    "at sunset": _phrases("warm golden light | long shadows | orange glow on the edges"),
    "in the morning": _phrases("fresh morning light | soft golden light | low sun from the side"),
}
SHAPE_LIGHT = _phrases("soft even light | a faint drop shadow | bright uniform light")
MEDIA = {
    "": (),
    "a photo of": _phrases("high resolution | true to life colors | slight film grain"),
    "a watercolor of": _phrases("delicate washes of color | rough paper texture | soft bleeding edges"),
    "an oil painting of": _phrases("visible brush strokes | thick layers of paint | canvas texture"),
    "a pencil sketch of": _phrases("loose pencil lines | fine hatching | rough paper texture"),
}
_COLOURS = "red green blue yellow orange purple pink cyan magenta white black gray brown teal navy lime gold silver"
_SHAPES = "circle square triangle star ring cross diamond heart rectangle ellipse stripe grid dot"
_PLACES = "left right top bottom center middle corner above below behind front next"
_SIZES = "tiny small large big huge"
_MARKS = ",.!-'\"0123456789äéßñø世界日本火図мдж☀🦊"


def details() -> frozenset[str]:
    """Every detail phrase there is."""
    kinds = (*_SCENES, UNKNOWN, SHAPE)
    lists = [(kind.composition, kind.texture, kind.background) for kind in kinds]
    groups = itertools.chain(*lists, LIGHT.values(), MEDIA.values(), [SHAPE_LIGHT])
    return frozenset(itertools.chain.from_iterable(groups))


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
    colours, names = _COLOURS.split(), _SHAPES.split()
    for colour, name, other in itertools.product(colours, names, colours):
        yield f"a {colour} {name} on a {other} background"
    for colour, name, place, size in itertools.product(colours, names, _PLACES.split(), _SIZES.split()):
        yield f"a {size} {colour} {name} at the {place}"


def _shape(rng: random.Random, shapes: Sequence[str]) -> Example:
    text = rng.choice(shapes)
    if rng.random() < 0.3:
        alone = text.split(" on ")[0].split(" at ")[0]
        text = f"{alone} {rng.choice(('and', 'next to', 'above', 'with'))} {rng.choice(shapes)}"
    background = () if "background" in text else SHAPE.background
    return _example(rng, text, (SHAPE.composition, SHAPE_LIGHT, SHAPE.texture, background))


def _scene(rng: random.Random) -> Example:
    kind = rng.choice(_SCENES)
    medium = rng.choice(tuple(MEDIA)) if rng.random() < 0.5 else ""
    time = rng.choice(tuple(LIGHT)) if rng.random() < 0.5 else ""
    setting = rng.choice(kind.settings) if rng.random() < 0.4 else ""
    text = " ".join(part for part in (medium, rng.choice(kind.subjects), setting, time) if part)
    background = () if setting else kind.background
    return _example(rng, text, (kind.composition, LIGHT[time], MEDIA[medium] or kind.texture, background))


def _unknown(rng: random.Random) -> Example:
    """Letters at random, few words or many: whatever the subject is, it is none of those above."""
    words = [
        "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 8)))
        if rng.random() < 0.9
        else "".join(rng.choices(_MARKS, k=rng.randint(1, 3)))
        for _ in range(rng.randint(1, rng.choice((3, 6, 12))))
    ]
    glue = ("a", "the", "of", "on", "in", "and", "with", "background", "light")
    text = words[0]
    for word in words[1:]:
        text += rng.choice((", ", " ", " ", " ", " ")) + (rng.choice(glue) if rng.random() < 0.3 else word)
    return _example(rng, text, (UNKNOWN.composition, LIGHT[""], UNKNOWN.texture, UNKNOWN.background))


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
