"""A field of a request as the interface describes it, and the values that tell whether a server holds to that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from serve_app.conformance import pictures
from serve_app.conformance.endpoints import NO_FINETUNE
from serve_app.conformance.session import Session, minimal

Kind: TypeAlias = Literal["text", "integer", "number", "flag", "choice", "picture", "hook", "other"]

_WRONG: Final[Mapping[Kind, tuple[Any, ...]]] = {
    "text": (7, {"a": "b"}),
    "integer": ("some", 1.5),
    "number": ("some", []),
    "flag": ("perhaps", 7),
    "choice": ("no such value", 7),
    "picture": (7,),
    "other": (7, {"a": "b"}),
    "hook": ("no address", "http://127.0.0.1/" + "x" * 2070, "", 7),
}
_NO_PICTURE: Final = "%%% no picture %%%"
_BEYOND: Final = 0.01
"""How far beyond its bounds a number is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    row: str
    """What the interface says of it, the cells between colons."""
    kind: Kind
    source: str = ""
    """The sentence that takes the field over from another endpoint, where one does."""
    least: float | None = None
    most: float | None = None
    multiple_of: int = 1
    choices: tuple[Any, ...] = ()
    """All values of a choice; of other kinds, further ones that are taken."""
    wrong: tuple[Any, ...] = ()
    """Further values that are refused."""
    contents: tuple[Any, ...] = ()
    """Further values that are refused once somebody looks into them."""
    nullable: bool = False
    required: bool = False
    gated: bool = False
    """Whether high values have to be approved first."""
    with_: Mapping[str, Any] = field(default_factory=dict)
    """What has to be sent beside it."""
    paired: str = ""
    """The field that has to be null where this one is."""

    @property
    def sentence(self) -> str:
        if self.source:
            return f"{self.source}: `{self.name}`"
        return f"`{self.name}`{self.row}" if self.row.startswith("*") else f"`{self.name}`: {self.row}"

    async def check(self, session: Session, endpoint: str) -> None:
        """Sends every value that says something. Raises Broken at the first that is answered otherwise."""
        if self.required:
            await self._is_required(session, endpoint)
        # A tuned model that does not exist is told before pictures are looked at.
        looked_at = minimal(endpoint).get("finetune_id") != NO_FINETUNE
        for value in (*self._refused(), *(self.contents if looked_at else ())):
            await session.refuses(endpoint, {**self.with_, self.name: value}, self.name)
        for value in self._taken(session):
            beside = {self.paired: None} if self.paired and value is None else self.with_
            await session.takes(endpoint, {**beside, self.name: value}, gated=self.gated)

    async def _is_required(self, session: Session, endpoint: str) -> None:
        await session.refuses(endpoint, dict(self.with_), self.name, without=self.name)

    def _refused(self) -> Iterator[Any]:
        yield from _WRONG[self.kind]
        yield from self.wrong
        step = _BEYOND if self.kind == "number" else self.multiple_of
        if self.least is not None:
            yield self.least - step
        if self.most is not None:
            yield self.most + step
        if self.least is not None and self.multiple_of > 1:
            yield self.least + 1

    def _taken(self, session: Session) -> Iterator[Any]:
        yield from (bound for bound in (self.least, self.most) if bound is not None)
        yield from self.choices
        match self.kind:
            case "text":
                yield "a red circle"
            case "integer" | "number" if self.least is None and self.most is None:
                yield 42
            case "flag":
                yield from (True, False)
            case "picture":
                yield pictures.photo()
            case "hook" if session.target.receiver is not None:
                yield session.target.receiver.hook()
            case _:
                pass
        if self.nullable:
            yield None


def text(name: str, row: str, **more: Any) -> Field:
    return Field(name=name, row=row, kind="text", **more)


def integer(name: str, row: str, least: int | None = None, most: int | None = None, **more: Any) -> Field:
    return Field(name=name, row=row, kind="integer", least=least, most=most, **more)


def number(name: str, row: str, least: float, most: float, **more: Any) -> Field:
    return Field(name=name, row=row, kind="number", least=least, most=most, **more)


def flag(name: str, row: str, **more: Any) -> Field:
    return Field(name=name, row=row, kind="flag", **more)


def choice(name: str, row: str, *choices: Any, **more: Any) -> Field:
    return Field(name=name, row=row, kind="choice", choices=choices, **more)


def picture(name: str, row: str, **more: Any) -> Field:
    return Field(name=name, row=row, kind="picture", contents=(_NO_PICTURE,), **more)


def tolerance(row: str, most: int) -> Field:
    return integer("safety_tolerance", row, 0, most, gated=True)


def taken_over(sentence: str, fields: Iterable[Field]) -> tuple[Field, ...]:
    """The fields of another endpoint, where a sentence says that they are the same here."""
    return tuple(replace(each, source=sentence) for each in fields)


def webhook(url: str, secret: str) -> tuple[Field, Field]:
    """The two fields, with what is said of them."""
    return (
        Field(name="webhook_url", row=url, kind="hook", nullable=True),
        text("webhook_secret", secret, nullable=True),
    )
