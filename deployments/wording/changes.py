"""Which changes of a picture are asked for: read from a prompt, and said as the checkpoint learnt them.

A prompt may hold several (`delete the moon and make the star bigger`), in any known words for them. What is said
afterwards goes on about the same thing (`..., and move it to the left`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from deployments.wording import backdrop
from deployments.wording.backdrop import Backdrop
from deployments.wording.items import (
    ADD,
    AND,
    BACKGROUND,
    BIGGER,
    BOTTOM,
    COLOUR,
    COLOURING,
    ENLARGE,
    INSTEAD,
    LEFT,
    MAKE,
    OTHER,
    PLACE,
    PUT,
    REMOVE,
    RIGHT,
    SHAPE,
    SHRINK,
    SIZE,
    SMALLER,
    STOP,
    TOP,
    TURN,
    VERBS,
    WAY,
    WITH,
    A,
    Item,
    codes,
    said,
)
from deployments.wording.mention import Mention, Subject, mentions, with_ones, with_place
from deployments.wording.places import each_placed
from deployments.wording.thing import Thing, at

_PARTED_BY: Final = frozenset({STOP, AND, WITH})
_SIZED: Final = {BIGGER: "bigger", SMALLER: "smaller", ENLARGE: "large", SHRINK: "small"}
_ALTERED: Final = {
    COLOUR: ("colour", "make {} {}"),
    SIZE: ("size", "make {} {}"),
    PLACE: ("place", "move {} to the {}"),
}
_ALTERING: Final = frozenset({*_ALTERED, *_SIZED})
_CHANGING: Final = frozenset({TURN, MAKE, COLOURING, ENLARGE, SHRINK})
"""What is done to things that are there."""
_ENDS: Final = {"across": RIGHT, "-across": LEFT, "down": BOTTOM, "-down": TOP}
_ALL_OF_IT: Final = Subject(both=True)
_BEHIND_INSTEAD: Final = re.compile("=[ea]?C?[Bh]i?(?=C)")
"""`instead of gray behind it brown`: a background that is brown."""
_UNSAID: Final = re.compile(
    "=[ea]?C?[Bh](?!i?C)i?|(?<=C)=C|(?<![bx])![^,&]*|(?<=B)r|(?<=B)h(?:i|e?C?S)|(?<=[um])e?C(?=Bt?a?C(?![ZS]))"
)
"""`instead of the gray background`, `instead of green`, `not on the left`, `the background behind it`; backgrounds have
a colour anyway, which is not what they become: `turn the gray background black`."""
_ONLY: Final = re.compile("k|[bx]!")
"""`only the heart`, `remove all that isn't a heart`."""
_PATTERN: Final = re.compile("e?[TKDG]+x?[,&]*a?(?=C(?![ZS]))")
"""`no more stripes, white instead`: a pattern without colours stands for the background that is there."""


def read(row: Sequence[Item]) -> str:
    """Empty where nothing is asked for that is known."""
    behind, rest = _behind(_without_the_unsaid(with_ones([item for item in row if item.code != OTHER])))
    reading = _Reading()
    for part in _parts(rest):
        reading.read(_to_the_end(part))
    background = [f"change the background to {behind.said()}"] if behind else []
    return " and ".join([*reading.all_told(), *background])


def _behind(row: Sequence[Item]) -> tuple[Backdrop | None, list[Item]]:
    """What the background becomes, and the rest."""
    behind, rest = backdrop.found(row)
    match = _PATTERN.search(codes(row))
    if behind or not match:
        return behind, rest
    return backdrop.found([*row[: match.start()], Item(BACKGROUND), *row[match.end() :]])


def _without_the_unsaid(row: Sequence[Item]) -> list[Item]:
    cut = _BEHIND_INSTEAD.sub(lambda match: BACKGROUND.rjust(len(match[0]), "-"), codes(row))
    cut = _UNSAID.sub(lambda match: "-" * len(match[0]), cut)
    pairs = zip(row, cut, strict=True)
    return [Item(BACKGROUND) if code == BACKGROUND else item for item, code in pairs if code != "-"]


def _to_the_end(part: Sequence[Item]) -> list[Item]:
    """`move the star from left to right`: to the right. Without a verb, a way is one of a background."""
    if PUT not in codes(part):
        return list(part)
    return [Item(PLACE, _ENDS[str(item.value)]) if item.code == WAY else item for item in part]


def _parts(row: Sequence[Item]) -> Iterator[list[Item]]:
    """One request each, as far as stops, `and` and verbs tell."""
    part: list[Item] = []
    for item in [*row, Item(STOP)]:
        if item.code == WITH and TURN in codes(part):  # replace the star with a moon
            continue
        again = item.code in VERBS and SHAPE in codes(part) and any(known.code in VERBS for known in part)
        if item.code in _PARTED_BY or again:
            if part:
                yield part
            part = []
        if item.code not in _PARTED_BY:
            part.append(item)


@dataclass
class _Reading:
    told: dict[str, str] = field(default_factory=dict[str, str])
    """What has been read, by what is changed of what: `the moon is too big, make it small` is one request."""
    subject: Subject = field(default_factory=Subject)
    """What is spoken of."""
    added: Thing | None = None
    """The same, if it is new; or several that are alike."""
    earlier: list[Thing] = field(default_factory=list[Thing])
    """What else is added, one by one."""
    latest: list[Thing] = field(default_factory=list[Thing])
    """What is added last, one by one."""
    removing: bool = False
    waiting: list[Item] = field(default_factory=list[Item])
    """What is said before the thing it is said of: a place, a colour."""

    def all_told(self) -> Sequence[str]:
        if not self.told:
            self.go_on(self.waiting)
        return tuple(self.told.values())

    def read(self, part: Sequence[Item]) -> None:
        verb = next((item.code for item in part if item.code in VERBS), "")
        spoken_of = mentions(part)
        shaped = [mention for mention in spoken_of if mention.thing.shape]
        removed, self.removing = self.removing, False
        listed = removed and not verb and shaped and not any(mention.after for mention in spoken_of)
        if not (spoken_of or verb or self.told) and self.subject == Subject():
            self.waiting += part
        elif spoken_of and _ONLY.search(codes(part)):
            kept = next((mention for mention in spoken_of if mention.subject != _ALL_OF_IT), spoken_of[0])
            if verb == REMOVE or not kept.of_before:  # not `leave the rest as it is`
                self._take_up(with_place(kept))
                self._tell("keep", f"remove everything but {self.subject.said()}")
        elif removed and shaped and INSTEAD in codes(part) and not shaped[0].definite:
            self._become(shaped[0])
        elif self.added and codes(part) == A + PLACE:  # and one on the right
            self._add(replace(self.added, place="", count=1), part)
        elif codes(part) == REMOVE and self.subject.shape:  # triangle: remove
            self._tell("remove", f"remove {self.subject.said()}")
        elif verb == REMOVE or listed:
            for mention in spoken_of:
                self._take_up(with_place(mention))
                self._tell("remove", f"remove {self.subject.said()}")
            self.removing = True
        elif len(shaped) > 1 and (verb != ADD or INSTEAD in codes(part)):
            self._reshape(*_old_and_new(part, shaped))
        elif shaped and len(spoken_of) > 1 and verb != ADD:
            self._reshape(*spoken_of[:2])
        elif shaped and _is_new(shaped[0], verb):
            self._add(shaped[0].thing, shaped[0].after)
        elif spoken_of:
            first = spoken_of[0]
            if first.unnamed and not (first.thing.place or verb):  # the thing on the left: make it blue
                first = with_place(first)
            self._alter(first, [item for item in part if item.code in _SIZED])
        else:
            self.go_on(part)

    def _take_up(self, mention: Mention) -> None:
        if not mention.of_before:
            self.subject, self.added = mention.subject, None

    def _tell(self, what: str, sentence: str) -> None:
        which = self.subject.said()
        self.told.pop(f"{what} of {which}", None)
        if self.added is None:  # what is changed afterwards stays
            self.told.pop(f"remove of {which}", None)
        self.told[f"{what} of {which}"] = sentence

    def _reshape(self, old: Mention, new: Mention) -> None:
        if not new.thing.shape:  # `the star looks wrong make it red`
            self._alter(old)
            self._alter(new)
            return
        self._take_up(with_place(old))
        self._become(new)

    def _become(self, new: Mention) -> None:
        self._tell("shape", f"turn {self.subject.said()} into {Thing(new.thing.shape).said()}")
        self.subject = Subject(new.thing.shape)
        named = ((COLOUR, new.thing.colour), (SIZE, new.thing.size))
        self.go_on([*(Item(code, name) for code, name in named if name), *new.after])

    def _add(self, thing: Thing, after: Sequence[Item]) -> None:
        self.earlier += self.latest
        self.subject, self.added = Subject(thing.shape), replace(thing, place="")
        self.go_on([*after, Item(PLACE, thing.place), *self.waiting])

    def _alter(self, mention: Mention, verbs: Sequence[Item] = ()) -> None:
        if verbs or set(codes(mention.after[1:])) & _ALTERING:
            mention = with_place(mention)
        self._take_up(mention)
        after = [*verbs, *mention.after]
        if not set(codes(after)) & _ALTERING:
            # All is said before its name: `top left heart`, `green star`, `small star`.
            thing = mention.thing
            if thing.place and thing.shape and not thing.colour:
                self.subject, after = replace(self.subject, place=""), [Item(PLACE, thing.place)]
            elif thing.colour and not mention.definite:
                self.subject, after = replace(self.subject, colour=""), [Item(COLOUR, thing.colour)]
            elif thing.size:
                after = [Item(SIZE, thing.size)]
        self.go_on(after)

    def go_on(self, row: Sequence[Item]) -> None:
        """With what is spoken of."""
        if self.added is not None:
            first, thing = said(item for item in row if item.value), self.added
            thing = replace(
                thing,
                colour=thing.colour or first.get(COLOUR, ""),
                size=thing.size or first.get(SIZE, ""),
                place=thing.place or first.get(PLACE, ""),
            )
            self.added = thing
            beside = [] if thing.place else self.earlier
            self.latest = each_placed([*beside, thing])[len(beside) :]
            for number, one in enumerate(self.latest, len(self.earlier)):
                self._tell(f"addition {number}", f"add {one.said()} {at(one.place)}")
            return
        which = self.subject.said()
        for item in row:
            if item.code in _SIZED:
                self._tell("size", f"make {which} {_SIZED[item.code]}")
            elif item.code in _ALTERED:
                what, form = _ALTERED[item.code]
                self._tell(what, form.format(which, item.value))


def _old_and_new(part: Sequence[Item], shaped: Sequence[Mention]) -> tuple[Mention, Mention]:
    """`instead of the star a heart`, `a heart instead of the star`, `a heart for the star instead`."""
    first, second = shaped[:2]
    if codes(part).startswith(INSTEAD):
        return first, second
    if codes(first.after).endswith(INSTEAD) or (first.indefinite and second.definite):
        return second, first
    return first, second


def _is_new(mention: Mention, verb: str) -> bool:
    """Whether the picture doesn't have it yet."""
    if verb == ADD or mention.definite or mention.both or verb in _CHANGING:
        return verb == ADD
    after = codes(mention.after)
    return mention.indefinite or (bool(mention.thing.colour) and PLACE in after and COLOUR not in after)
