"""Finds the words of a list in what was written so as not to be one: `k*ll`, `killaman`, `suicdie`.

All work is bounded for each word: longer ones than `LONGEST` are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

MASKS: Final = "*#_"
"""Signs that may stand for one letter each."""
LONGEST: Final = 40

_LEAST_PIECE: Final = 3
"""Letters of a word that letters in a row may be made of, other than the words between."""
_LEAST_JOINED: Final = 4
"""And of one that is written together with others, where any word of a language may happen to be made of such."""
_LEAST_TOGETHER: Final = 8
_LONGEST_PIECE: Final = 24
_MOST: Final = 12
"""Words that a masked one may stand for."""
_LEAST_MISSPELT: Final = 6

_BETWEEN: Final = frozenset(
    {"an", "and", "at", "by", "for", "he", "her", "him", "his", "in", "is", "it", "me", "my", "no", "not", "now", "of"}
    | {"on", "or", "our", "out", "she", "so", "the", "them", "they", "to", "up", "us", "was", "we", "with", "you"}
    | {"your", "drawing", "image", "painting", "photo", "picture", "scene", "video"}
)
_MASK: Final = re.compile(r"[*#_]")


class Disguised:
    """`vocabulary` is folded. `misspelt` are those words of it that are known with a wrong letter as well."""

    def __init__(self, vocabulary: frozenset[str], misspelt: Iterable[str] = ()) -> None:
        words = {word for word in vocabulary if _LEAST_PIECE <= len(word) <= _LONGEST_PIECE and word.isalpha()}
        self._pieces = _BETWEEN | words
        self._joined = _BETWEEN.union(word for word in words if len(word) >= _LEAST_JOINED)
        self._vocabulary = vocabulary
        self._by_ends: dict[tuple[int, str, str], list[str]] = {}
        for word in sorted(words):
            self._by_ends.setdefault((len(word), word[0], word[-1]), []).append(word)
        self._shortened: dict[str, tuple[str, int]] = {}
        """With the place of the letter that is left out."""
        for word in sorted(misspelt):
            for at, short in _shortened(word):
                self._shortened.setdefault(short, (word, at))
            self._shortened[word] = word, 0

    def unmasked(self, word: str) -> list[str]:
        """The words that one with signs in it may stand for, `word` without any other sign."""
        masked = [match.start() for match in _MASK.finditer(word[:LONGEST])]
        if not masked or len(word) > LONGEST or 2 * len(masked) > len(word) or masked[0] == 0:
            return []
        return list(islice(self._fitting(word, masked), _MOST))

    def _fitting(self, word: str, masked: list[int]) -> Iterator[str]:
        """All that the list has for the word or its beginning; what follows is as it is."""
        for length in range(max(masked[-1] + 2, _LEAST_PIECE), len(word) + 1):
            for known in self._by_ends.get((length, word[0], word[length - 1]), ()):
                if all(letter == its or letter in MASKS for letter, its in zip(word, known, strict=False)):
                    yield known + word[length:]

    def misspelt(self, word: str) -> str | None:
        """The word that it is but for one letter, or for two that changed places; its first letter is right."""
        if not self._shortened or not _LEAST_MISSPELT <= len(word) + 1 <= LONGEST or word in self._vocabulary:
            return None
        if (found := self._shortened.get(word)) is not None:
            return found[0]
        for at, short in _shortened(word):
            if (found := self._shortened.get(short)) is None:
                continue
            known, its = found
            if known == short or abs(its - at) <= 1:
                return known
        return None

    def apart(self, word: str) -> list[str]:
        """The words that one is made of which were written together; empty where it isn't."""
        if not _LEAST_TOGETHER <= len(word) <= LONGEST or word in self._vocabulary:
            return []
        return self._divided(word, self._joined)

    def divided(self, row: str) -> list[str]:
        """The fewest known words that letters in a row are; empty when one is left, as the S of `s k i l l` is."""
        return self._divided(row, self._pieces)

    def _divided(self, row: str, pieces: frozenset[str]) -> list[str]:
        before: list[tuple[int, int] | None] = [(0, 0), *([None] * len(row))]
        """Number of words to here, and the last one's start."""
        for start in range(len(row)):
            if (here := before[start]) is None:
                continue
            for end in range(start + 1, min(start + _LONGEST_PIECE, len(row)) + 1):
                piece = row[start:end]
                if piece in pieces or (piece == "a" and start):
                    there = before[end]
                    if there is None or there[0] > here[0] + 1:
                        before[end] = here[0] + 1, start
        found, end = [], len(row)
        while end:
            if (last := before[end]) is None:
                return []
            found.append(row[last[1] : end])
            end = last[1]
        return found[::-1]


def _shortened(word: str) -> Iterator[tuple[int, str]]:
    """Without one of its letters, the first apart, and which."""
    for at in range(1, len(word)):
        yield at, word[:at] + word[at + 1 :]
