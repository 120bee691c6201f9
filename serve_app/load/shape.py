"""What a request asks for, as far as its cost depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

_MEGAPIXEL: Final = 1_000_000


class Size(NamedTuple):
    """In pixels."""

    width: int
    height: int

    @classmethod
    def parsed(cls, text: object) -> Self:
        """Of `512x768`. Raises ValueError for anything else."""
        width, sign, height = str(text).lower().partition("x")
        if not sign or not (width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
            raise ValueError(f"a size is written WIDTHxHEIGHT in pixels, like 1024x768, not {text!r}")
        size = cls(int(width), int(height))
        if 0 in size:
            raise ValueError(f"a size has at least one pixel each way, not {text!r}")
        return size

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is None is left to the server."""

    size: Size | None = None
    steps: int | None = None
    references: int = 0
    """Pictures that are sent along."""
    seconds: int | None = None
    """Of video."""
    tuned: bool = False
    """Whether a tuned model (LoRA) is asked for."""

    @property
    def work(self) -> float | None:
        """Megapixel-steps of the picture, or of all seconds of the video as one picture each; None where the size or
        the steps are the server's to choose."""
        if self.size is None or self.steps is None:
            return None
        return self.size.width * self.size.height / _MEGAPIXEL * self.steps * (self.seconds or 1)

    def __str__(self) -> str:
        parts = (
            str(self.size) if self.size else "",
            f"{self.steps} steps" if self.steps is not None else "",
            f"{self.references} picture{'s' if self.references > 1 else ''} sent" if self.references else "",
            f"{self.seconds} s" if self.seconds is not None else "",
            "tuned" if self.tuned else "",
        )
        return ", ".join(part for part in parts if part) or "as the server chooses"
