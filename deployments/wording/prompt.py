"""How a prompt in people's words is put before a checkpoint that learnt few sentences of its own.

Words come first (`contract.words`): synonyms, other languages, letters that are wrong. Then what they say is read, and
said again as the checkpoint knows it: a picture (`picture`), changes of one (`changes`), or what becomes of two
(`joining`). A prompt that can't be read so goes on in known words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deployments.contract.words import Words, split
from deployments.wording import changes, joining, picture
from deployments.wording.items import Item, items

LONGEST: Final = 300
"""Words of a prompt that is read; no picture here needs more."""
_MOST_GIVEN: Final = 2
"""Pictures that a prompt may speak of."""


def read(prompt: str, words: Words, pictures: int, *, placed: bool = False, tuned: bool = False) -> str:
    """What a checkpoint with these words gets: never empty, as text encoders can't read a text without any tokens.

    `pictures` are the given ones that it speaks of; 0: it tells a new one. Where things are `placed` by something else,
    as a mask, outlines or boxes, words are taken to say what they are alone. A `tuned` model may have learnt words and
    sentences of its own.
    """
    told = ""
    pieces = words.pieces(prompt)
    readable = bool(words.shapes) and pictures <= _MOST_GIVEN and len(pieces) <= LONGEST
    if readable and not (placed or tuned or split(prompt)[1]):
        told = _said(items(pieces, words), words, pictures)
    return told or words.normalised(prompt, keep_unknown=tuned) or " "


def _said(row: Sequence[Item], words: Words, pictures: int) -> str:
    """Empty where it can't be read."""
    if pictures == 0:
        seen = picture.read(row, words)
        return seen.said() if seen else ""
    return changes.read(row) if pictures == 1 else joining.read(row)
