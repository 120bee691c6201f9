"""Edits of one image, or combinations of two: parsed from a prompt, and described in the sentences that were learnt.

A prompt may hold several changes; later ones may refer to the thing of an earlier one (`..., and move it to the left`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from deployments.bundled.grammar.image import SceneObject, assign_positions, find_background, locative
from deployments.bundled.grammar.items import Item, first_values, letters, remove

_VERBS, _CHANGING = "+xumvrgl", ("u", "m", "r", "g", "l")
"""Letters of verbs, and of those that change a thing in the image."""
_SIZED: Final = {">": "bigger", "<": "smaller", "g": "large", "l": "small"}
_ENDS: Final = {"across": "right", "-across": "left", "down": "bottom", "-down": "top"}
_UNSAID: Final = re.compile(
    "=[ea]?C?[Bh](?!i?C)i?|(?<=C)=C|(?<![bx])![^,&]*|(?<=B)r|(?<=B)h(?:i|e?C?S)|(?<=[um])e?C(?=Bt?a?C(?![ZS]))"
)
"""Parts to ignore: `instead of the gray background`, `not on the left`, the old colour in `turn the gray one black`."""
_ONE: Final = re.compile("(?<=e[CZ])a(?!Z*C?S)|(?<=e)a(?=P(?![CZ]*S))")
"""A `one` without a noun: `the red one`, `the one on the left`."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A thing named in a prompt: `thing` holds what precedes its name, `after` what follows up to the next mention."""

    thing: SceneObject
    definite: bool = False
    new: bool = False
    both: bool = False
    after: tuple[Item, ...] = ()

    @property
    def reference(self) -> str:
        """A noun phrase such as `the red star`; `it` without any details, for the only thing there is."""
        shape, colour, position = self.thing.shape or "thing", self.thing.colour, self.thing.position
        if self.both:
            return f"both {shape}"
        if not (self.thing.shape or colour or position):
            return "it"
        return f"the {colour} {shape}" if colour else f"the {shape} {locative(position)}".rstrip()

    def with_position(self) -> Mention:
        """Takes a position that follows the name as that of the existing thing, not as its destination."""
        if self.new or letters(self.after[:1]) != "P":
            return self
        thing = replace(self.thing, position=self.after[0].value)
        return replace(self, thing=thing, definite=True, after=self.after[1:])


def change(row: Sequence[Item]) -> str:
    """Returns the sentence for edits of one image; empty if none are understood."""
    row = remove(_with_pronouns([item for item in row if item.letter != "."]), _UNSAID)
    background, remaining = find_background(row)
    if background is None and (pattern := re.search("e?[TKDG]+x?[,&]*a?(?=C(?![ZS]))", letters(row))):
        background, remaining = find_background([*row[: pattern.start()], Item("B"), *row[pattern.end() :]])
    changes = _Changes()
    for part in _parts(remaining):
        changes.read(part)
    if not changes.sentences:
        changes.continue_with(changes.waiting)
    last = [f"change the background to {background.describe()}"] if background else []
    return " and ".join([*changes.sentences.values(), *last])


def join(row: Sequence[Item]) -> str:
    """Returns the sentence for a combination of two images; empty if it is unclear what comes from which."""
    row = [Item("I", item.value) if item.letter == "R" else item for item in _with_pronouns(row)]
    row = [item for item in row if item.letter != "I" or item.value.isdigit()]  # drops `image` without a number
    row = [
        Item("f") if item.value == "of" else item for item in row if item.value == "of" or item.letter not in ".ea&r"
    ]
    if "B" in letters(row):  # the striped background
        row = [item for item in row if item.letter not in "TKDG"]
    else:  # the heart from image 1 on the stripes of image 2
        row = [Item("B") if item.letter in "TKDG" else item for item in row]
    code = letters(row)
    shapes = [index for index, item in enumerate(row) if item.letter == "S"]
    shapes = shapes or [match.start() for match in re.finditer("(?<=[CZ])q|q(?=Pf?I)", code)]
    is_one_thing = len({row[index].value for index in shapes}) == 1 and "N" not in code
    replaced = re.search("u(?:BfI|IB)", code)
    if match := replaced or re.search("B[wfo,]+I", code) or re.search("I[i,]*B|BI", code):
        number = int(first_values(row[slice(*match.span())])["I"])
        number = 3 - number if replaced else number
        images = f"image {3 - number} on the background of image {number}"
        return _transfer(row, shapes[0], f"from {images}") if is_one_thing else images
    if not is_one_thing or "I" not in code:
        return ""
    source = _source(row, shapes[0])
    return f"add {_transfer(row, shapes[0], f'from image {source} to image {3 - source}')}"


def _with_pronouns(row: Sequence[Item]) -> list[Item]:
    """Replaces each `one` by a thing."""
    code = _ONE.sub("q", letters(row))
    return [Item("q") if letter == "q" else item for item, letter in zip(row, code, strict=True)]


def _parts(row: Sequence[Item]) -> Iterator[list[Item]]:
    """Splits at stops, `and` and verbs into one request each."""
    part: list[Item] = []
    for item in [*row, Item(",")]:
        code = letters(part)
        if item.letter == "w" and "u" in code:  # replace the star with a moon
            continue
        if item.letter == "W" and "v" in code:  # move it from left to right
            item = Item("P", _ENDS[item.value])
        if item.letter in ",&w" or (item.letter in _VERBS and "S" in code and set(code) & set(_VERBS)):
            yield part
            part = []
        if item.letter not in ",&w":
            part.append(item)


def _mentions(part: Sequence[Item]) -> list[Mention]:
    """Finds the things named in a part; without a shape also `the left one`, `the red one` and `both`. A position in
    front belongs to the first."""
    code = letters(part)
    form = "[eabN]*[CZP]*S|[ea]q(?=P)|eCq|i" if "S" in code else "[eab]*[CZP]*q|Pa|i|b"
    spans = [match.span() for match in re.finditer(form, code)]
    mentions: list[Mention] = []
    for (begin, end), until in zip(spans, [*(begin for begin, _ in spans[1:]), len(part)], strict=False):
        name, after = code[begin:end], part[end:until]
        definite = bool(set("ei") & set(name)) or name.startswith("P")
        new = bool(set("aN") & set(name)) and "e" not in name and not name.startswith("P")
        if mentions and definite and re.search("[_^n]t?$", letters(mentions[-1].after)):  # the star next to the moon
            mentions[-1] = replace(mentions[-1], after=tuple(after))
            continue
        leading = [item for item in part[:begin] if item.letter == "P"] if not mentions else []
        mentions.append(
            Mention(
                SceneObject.from_items(part[begin:end]), definite, new, "b" in name or "eN" in name, (*after, *leading)
            )
        )
    return mentions


@dataclass
class _Changes:
    sentences: dict[str, str] = field(default_factory=dict[str, str])
    """Sentences by property and thing, so that `the moon is too big, make it small` is one request."""
    current: Mention = field(default_factory=lambda: Mention(SceneObject()))
    """The thing that `it` refers to."""
    added: list[SceneObject] = field(default_factory=list[SceneObject])
    adding: bool = False  # `current` is the last of `added`
    waiting: list[Item] = field(default_factory=list[Item])
    """Positions and colours that precede their thing."""

    def read(self, part: Sequence[Item]) -> None:
        code = letters(part)
        verb = next((letter for letter in code if letter in _VERBS), "")
        mentions = _mentions(part)
        shaped = [mention for mention in mentions if mention.thing.shape]
        if not part or not (mentions or verb or self.sentences):
            self.waiting += part
        elif mentions and re.search("k|[bx]!", code):  # only the heart
            target = next((mention for mention in mentions if mention.reference != "both thing"), mentions[0])
            if verb == "x" or target.reference != "it":
                self.refer_to(target.with_position())
                self.add_sentence("keep", f"remove everything but {self.current.reference}")
        elif verb == "x":
            for mention in mentions or [self.current]:
                self.refer_to(mention.with_position())
                self.add_sentence("remove", f"remove {self.current.reference}")
        elif shaped and len(mentions) > 1 and mentions[1].thing.shape and (verb != "+" or "=" in code):
            old, new = mentions[:2]
            if not code.startswith("=") and (letters(old.after).endswith("=") or (old.new and new.definite)):
                old, new = new, old  # a heart instead of the star
            self.refer_to(old.with_position())
            self.replace_with(new)
        elif shaped and (verb == "+" or (shaped[0].new and not shaped[0].both and verb not in _CHANGING)):
            thing = shaped[0].thing
            self.current, self.adding = Mention(SceneObject(thing.shape)), True
            self.added.append(thing)
            self.continue_with([*shaped[0].after, *self.waiting])
        else:
            sized = [item for item in part if item.letter in _SIZED and mentions]
            self.alter(mentions[0], sized) if mentions else self.continue_with(part)

    def refer_to(self, mention: Mention) -> None:
        if mention.reference != "it" or not self.sentences:
            self.current, self.adding = replace(mention, after=()), False

    def add_sentence(self, what: str, sentence: str) -> None:
        key = f"{what} of {self.current.reference}"
        self.sentences.pop(key, None)
        self.sentences[key] = sentence

    def replace_with(self, new: Mention) -> None:
        shape = SceneObject(new.thing.shape)
        self.add_sentence("shape", f"turn {self.current.reference} into {shape.describe()}")
        self.current = Mention(shape)
        self.continue_with([Item("C", new.thing.colour), Item("Z", new.thing.size), *new.after])

    def alter(self, mention: Mention, sized: Sequence[Item]) -> None:
        if sized or set(letters(mention.after[1:])) & {"C", "Z", "P", *_SIZED}:
            mention = mention.with_position()
        self.refer_to(mention)
        self.continue_with([*sized, *mention.after] or [Item("Z", mention.thing.size)])

    def continue_with(self, row: Sequence[Item]) -> None:
        """Applies the properties in `row` to the current thing."""
        if self.adding:
            more = SceneObject.from_items([item for item in row if item.letter in "CZP"])
            self.added[-1] = self.added[-1].with_more(more)
            for number, thing in enumerate(assign_positions(self.added)):
                self.sentences[f"addition {number}"] = f"add {thing.describe()} {locative(thing.position)}"
            return
        reference = self.current.reference
        for letter, value in row:
            if quality := _SIZED.get(letter) or (value if letter in "CZ" else ""):
                self.add_sentence("Z" if letter in _SIZED else letter, f"make {reference} {quality}")
            elif letter == "P" and value:
                self.add_sentence(letter, f"move {reference} to the {value}")


def _source(row: Sequence[Item], thing: int) -> int:
    """Returns the number of the image that the thing is taken from: the one after `from`, else the one right before the
    thing, else the one that is not named last."""
    code = letters(row)
    origin = code.find("fI", thing) if "fI" in code[thing:] else code.find("fI")
    if origin >= 0:
        return int(row[origin + 1].value)
    if match := re.search("I[i,]*[CZ]*$", code[:thing]):
        return int(row[match.start()].value)
    return 3 - int(row[code.rindex("I")].value)


def _transfer(row: Sequence[Item], thing: int, images: str) -> str:
    """Describes which thing to take, `images`, its position there, and other changes."""
    begin = thing - len(letters(row[:thing])) + len(letters(row[:thing]).rstrip("CZ"))
    named = first_values(row[begin : thing + 1])
    shape = named.get("S", "")
    others = [item for item in (*row[thing + 1 :], *row[:begin]) if item.letter in "CZP"]
    position = locative(first_values(others).get("P", ""))
    plain = Mention(SceneObject(shape)).reference
    changes = [f"make {plain} {item.value}" for item in others if item.letter != "P"]
    reference = Mention(SceneObject(shape, named.get("C", ""))).reference
    return " and ".join((f"{reference} {images} {position}".rstrip(), *changes))
