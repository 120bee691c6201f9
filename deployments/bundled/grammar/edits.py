"""What shall become of one image, or of two: read from a prompt, and said in the sentences that were learnt.

A prompt may hold several changes; what follows one goes on about the same thing (`..., and move it to the left`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from deployments.bundled.grammar.image import Thing, at, backdrop, placed
from deployments.bundled.grammar.items import Item, first, letters, without

_VERBS, _CHANGING = "+xumvrgl", ("u", "m", "r", "g", "l")
"""Of requests, and those of them for what is there already."""
_SIZED: Final = {">": "bigger", "<": "smaller", "g": "large", "l": "small"}
_ENDS: Final = {"across": "right", "-across": "left", "down": "bottom", "-down": "top"}
_UNSAID: Final = re.compile(
    "=[ea]?C?[Bh](?!i?C)i?|(?<=C)=C|(?<![bx])![^,&]*|(?<=B)r|(?<=B)h(?:i|e?C?S)|(?<=[um])e?C(?=Bt?a?C(?![ZS]))"
)
"""`instead of the gray background`, `not on the left`, `turn the gray background black`."""
_ONE: Final = re.compile("(?<=e[CZ])a(?!Z*C?S)|(?<=e)a(?=P(?![CZ]*S))")
"""`the red one`, `the one on the left`."""


@dataclass(frozen=True, slots=True)
class Mention:
    """`thing` has what is said before its name, `after` is what follows, up to the next mention."""

    thing: Thing
    definite: bool = False
    new: bool = False
    both: bool = False
    after: tuple[Item, ...] = ()

    @property
    def which(self) -> str:
        """Without anything it is `it`: the only thing there is."""
        named, colour, place = self.thing.shape or "thing", self.thing.colour, self.thing.place
        if self.both:
            return f"both {named}"
        if not (self.thing.shape or colour or place):
            return "it"
        return f"the {colour} {named}" if colour else f"the {named} {at(place)}".rstrip()

    def there(self) -> Mention:
        """The same, if a place follows its name: the one that is there, not one that goes there."""
        if self.new or letters(self.after[:1]) != "P":
            return self
        return replace(self, thing=replace(self.thing, place=self.after[0].value), definite=True, after=self.after[1:])


def change(row: Sequence[Item]) -> str:
    """Empty where nothing is asked for that is known."""
    row = without(_with_ones([item for item in row if item.letter != "."]), _UNSAID)
    behind, rest = backdrop(row)
    if behind is None and (pattern := re.search("e?[TKDG]+x?[,&]*a?(?=C(?![ZS]))", letters(row))):
        behind, rest = backdrop([*row[: pattern.start()], Item("B"), *row[pattern.end() :]])
    changes = _Changes()
    for part in _parts(rest):
        changes.read(part)
    if not changes.sentences:
        changes.go_on(changes.waiting)
    return " and ".join(
        [*changes.sentences.values(), *([f"change the background to {behind.said()}"] if behind else [])]
    )


def join(row: Sequence[Item]) -> str:
    """Empty where it isn't said what comes from which of two images."""
    row = [Item("I", item.value) if item.letter == "R" else item for item in _with_ones(row)]
    row = [item for item in row if item.letter != "I" or item.value.isdigit()]  # `image` alone names none
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
    one_thing = len({row[index].value for index in shapes}) == 1 and "N" not in code
    replaced = re.search("u(?:BfI|IB)", code)
    if behind := replaced or re.search("B[wfo,]+I", code) or re.search("I[i,]*B|BI", code):
        number = int(first(row[slice(*behind.span())])["I"])
        number = 3 - number if replaced else number
        images = f"image {3 - number} on the background of image {number}"
        return _moved(row, shapes[0], f"from {images}") if one_thing else images
    if not one_thing or "I" not in code:
        return ""
    there = _source(row, shapes[0])
    return f"add {_moved(row, shapes[0], f'from image {there} to image {3 - there}')}"


def _with_ones(row: Sequence[Item]) -> list[Item]:
    """With a thing for each `one`."""
    code = _ONE.sub("q", letters(row))
    return [Item("q") if letter == "q" else item for item, letter in zip(row, code, strict=True)]


def _parts(row: Sequence[Item]) -> Iterator[list[Item]]:
    """One request each, as far as stops, `and` and verbs tell."""
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
    """`the left one`, `the red one` and `both` are some, where no shape is named; a place in front is of the first."""
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
            Mention(Thing.of(part[begin:end]), definite, new, "b" in name or "eN" in name, (*after, *leading))
        )
    return mentions


@dataclass
class _Changes:
    sentences: dict[str, str] = field(default_factory=dict[str, str])
    """By what is changed of what: `the moon is too big, make it small` is one request."""
    spoken_of: Mention = field(default_factory=lambda: Mention(Thing()))
    added: list[Thing] = field(default_factory=list[Thing])
    adding: bool = False  # the last of these is spoken of
    waiting: list[Item] = field(default_factory=list[Item])
    """What is said before the thing it is said of: a place, a colour."""

    def read(self, part: Sequence[Item]) -> None:
        code = letters(part)
        verb = next((letter for letter in code if letter in _VERBS), "")
        spoken_of = _mentions(part)
        shaped = [mention for mention in spoken_of if mention.thing.shape]
        if not part or not (spoken_of or verb or self.sentences):
            self.waiting += part
        elif spoken_of and re.search("k|[bx]!", code):  # only the heart
            target = next((mention for mention in spoken_of if mention.which != "both thing"), spoken_of[0])
            if verb == "x" or target.which != "it":
                self.take_up(target.there())
                self.tell("keep", f"remove everything but {self.spoken_of.which}")
        elif verb == "x":
            for mention in spoken_of or [self.spoken_of]:
                self.take_up(mention.there())
                self.tell("remove", f"remove {self.spoken_of.which}")
        elif shaped and len(spoken_of) > 1 and spoken_of[1].thing.shape and (verb != "+" or "=" in code):
            old, new = spoken_of[:2]
            if not code.startswith("=") and (letters(old.after).endswith("=") or (old.new and new.definite)):
                old, new = new, old  # a heart instead of the star
            self.take_up(old.there())
            self.become(new)
        elif shaped and (verb == "+" or (shaped[0].new and not shaped[0].both and verb not in _CHANGING)):
            thing = shaped[0].thing
            self.spoken_of, self.adding = Mention(Thing(thing.shape)), True
            self.added.append(thing)
            self.go_on([*shaped[0].after, *self.waiting])
        else:
            sized = [item for item in part if item.letter in _SIZED and spoken_of]
            self.alter(spoken_of[0], sized) if spoken_of else self.go_on(part)

    def take_up(self, mention: Mention) -> None:
        if mention.which != "it" or not self.sentences:
            self.spoken_of, self.adding = replace(mention, after=()), False

    def tell(self, what: str, sentence: str) -> None:
        which = self.spoken_of.which
        self.sentences.pop(f"{what} of {which}", None)
        self.sentences[f"{what} of {which}"] = sentence

    def become(self, new: Mention) -> None:
        self.tell("shape", f"turn {self.spoken_of.which} into {Thing(new.thing.shape).said()}")
        self.spoken_of = Mention(Thing(new.thing.shape))
        self.go_on([Item("C", new.thing.colour), Item("Z", new.thing.size), *new.after])

    def alter(self, mention: Mention, sized: Sequence[Item]) -> None:
        if sized or set(letters(mention.after[1:])) & {"C", "Z", "P", *_SIZED}:
            mention = mention.there()
        self.take_up(mention)
        self.go_on([*sized, *mention.after] or [Item("Z", mention.thing.size)])

    def go_on(self, row: Sequence[Item]) -> None:
        """With what is spoken of."""
        if self.adding:
            self.added[-1] = self.added[-1].with_more(Thing.of([item for item in row if item.letter in "CZP"]))
            for number, thing in enumerate(placed(self.added)):
                self.sentences[f"addition {number}"] = f"add {thing.said()} {at(thing.place)}"
            return
        which = self.spoken_of.which
        for letter, value in row:
            if quality := _SIZED.get(letter) or (value if letter in "CZ" else ""):
                self.tell("Z" if letter in _SIZED else letter, f"make {which} {quality}")
            elif letter == "P" and value:
                self.tell(letter, f"move {which} to the {value}")


def _source(row: Sequence[Item], thing: int) -> int:
    """The image that is named right before the thing, unless it is said to be from another one, else the next one."""
    code = letters(row)
    origin = code.find("fI", thing) if "fI" in code[thing:] else code.find("fI")
    if origin >= 0:
        return int(row[origin + 1].value)
    if match := re.search("I[i,]*[CZ]*$", code[:thing]):
        return int(row[match.start()].value)
    return 3 - int(row[code.rindex("I")].value)


def _moved(row: Sequence[Item], thing: int, images: str) -> str:
    """Which thing, `images`, where it goes, and what else becomes of it."""
    begin = thing - len(letters(row[:thing])) + len(letters(row[:thing]).rstrip("CZ"))
    named = first(row[begin : thing + 1])
    shape = named.get("S", "")
    others = [item for item in (*row[thing + 1 :], *row[:begin]) if item.letter in "CZP"]
    place = at(first(others).get("P", ""))
    plain = Mention(Thing(shape)).which
    changes = [f"make {plain} {item.value}" for item in others if item.letter != "P"]
    which = Mention(Thing(shape, named.get("C", ""))).which
    return " and ".join((f"{which} {images} {place}".rstrip(), *changes))
