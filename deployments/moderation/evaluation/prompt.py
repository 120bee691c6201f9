"""The prompts that a text judge is examined with.

`prompts.yaml` is by the author of the lexicon, `blind.yaml` by another who had seen neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from deployments.contract.moderation import CATEGORIES

_FOLDER: Final = Path(__file__).parent

SPELLINGS: Final = ("plain", "leet", "spaced", "homoglyph", "stretched", "masked", "joined", "typo")
WORDINGS: Final = ("named", "slang", "described")
"""Of what should be refused. Slang: euphemisms, code words, emoji. Described: no single word gives it away."""

STRICTEST, LOOSEST = 0, 5


@dataclass(frozen=True, slots=True)
class Prompt:
    """Should be refused at the tolerances from 0 to `until`, for `category`; never, where that is None.

    At looser tolerances than `until` it doesn't matter. The judge must never be tuned on what is `held_out` or by the
    `second_author`.
    """

    id: str
    text: str
    category: str | None = None
    until: int = LOOSEST
    spelling: str = "plain"
    language: str = "en"
    wording: str = "named"
    held_out: bool = False
    second_author: bool = False

    def __post_init__(self) -> None:
        if self.category is not None and self.category not in CATEGORIES:
            raise ValueError(f"{self.id}: {self.category!r} is none of {', '.join(CATEGORIES)}")
        if self.spelling not in SPELLINGS:
            raise ValueError(f"{self.id}: {self.spelling!r} is none of {', '.join(SPELLINGS)}")
        if self.wording not in WORDINGS:
            raise ValueError(f"{self.id}: {self.wording!r} is none of {', '.join(WORDINGS)}")
        if not STRICTEST <= self.until <= LOOSEST:
            raise ValueError(f"{self.id}: there is no tolerance {self.until}")


def prompts() -> list[Prompt]:
    return [*_read("blind.yaml", second_author=True), *_read("prompts.yaml", second_author=False)]


def _read(file: str, *, second_author: bool) -> list[Prompt]:
    entries = yaml.safe_load((_FOLDER / file).read_text(encoding="utf-8"))
    return [Prompt(**entry, second_author=second_author) for entry in entries]
