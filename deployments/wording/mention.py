"""How a request speaks of a thing that a picture has, and how a checkpoint learnt to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deployments.wording.items import ALL, COLOUR, IT, PLACE, SHAPE, SIZE, THE, A, Item, codes, said
from deployments.wording.thing import Thing, at


@dataclass(frozen=True, slots=True)
class Subject:
    """Without anything it is `it`: the only thing there is."""

    shape: str = ""
    colour: str = ""
    place: str = ""
    both: bool = False

    def said(self) -> str:
        if self.both:
            return f"both {self.shape}"
        if not self.shape:
            return f"the thing {at(self.place)}" if self.place else "it"
        if self.colour:
            return f"the {self.colour} {self.shape}"
        return f"the {self.shape} {at(self.place)}".rstrip()


@dataclass(frozen=True, slots=True)
class Mention:
    """`thing` has what is said before its name, `after` is what follows, up to the next mention."""

    thing: Thing
    definite: bool
    indefinite: bool
    both: bool
    after: tuple[Item, ...]

    @property
    def of_before(self) -> bool:
        """Whether it is `it`, or a thing without anything: what was spoken of before."""
        return not self.thing.shape and not self.thing.place

    @property
    def subject(self) -> Subject:
        return Subject(self.thing.shape, self.thing.colour, self.thing.place, self.both)


def mentions(part: Sequence[Item]) -> list[Mention]:
    """In order. `the left one` is one, where no shape is named; a place in front of all is said of the first."""
    told = codes(part)
    # `change the shape of it` is about the shape, `turn the thing on the left` about a thing.
    form = "[eab]*[CZP]*S|[ea]q(?=P)|i" if SHAPE in told else "[eab]*[CZP]*q|Pa|i"
    spans = [match.span() for match in re.finditer(form, told)]
    untils = [*(begin for begin, _ in spans[1:]), len(part)]
    found = [_mention(part[begin:end], part[end:until]) for (begin, end), until in zip(spans, untils, strict=False)]
    if found:
        leading = (item for item in part[: spans[0][0]] if item.code == PLACE)
        found[0] = replace(found[0], after=(*found[0].after, *leading))
    return found


def with_place(mention: Mention) -> Mention:
    """The same, if a place follows its name: the one that is there, not one that goes there."""
    if mention.indefinite or codes(mention.after[:1]) != PLACE:
        return mention
    thing = replace(mention.thing, place=str(mention.after[0].value))
    return replace(mention, thing=thing, definite=True, after=mention.after[1:])


def _mention(name: Sequence[Item], after: Sequence[Item]) -> Mention:
    told, first = codes(name), said(name)
    thing = Thing(first.get(SHAPE, ""), first.get(COLOUR, ""), first.get(SIZE, ""), first.get(PLACE, ""))
    begins_with_place = told.startswith(PLACE)
    return Mention(
        thing,
        definite=THE in told or IT in told or begins_with_place,
        indefinite=A in told and THE not in told and not begins_with_place,
        both=ALL in told,
        after=tuple(after),
    )
