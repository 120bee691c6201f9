"""Undoes what hides a word from a word list, and leaves plain text plain.

A text becomes a row of words, each with every reading that it may have: as it is written, with digits and signs taken
for the letters they stand for (`k1ll`), with its stretched letters shortened (`kiiill`), without the marks inside it
(`ki-ll`). Letters that stand alone in a row (`k i l l`, `k.i.l.l`) become one word. Look-alike letters, ligatures,
accents and invisible characters are replaced before that (Unicode TR39, "confusables", and NFKD, UAX 15).

Nothing is a reading that isn't one by spelling alone: `3 red balls` keeps its 3, and a letter or two on their own stay
as they are. The work is linear in the length of the text: every character is folded on its own, never in its row.
"""

# ruff: noqa: RUF001 (letters that look like others are what this is about)

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, TypeAlias

Readings: TypeAlias = tuple[str, ...]
"""Of one word, the one as written first."""

_LONGEST_EXPANSION: Final = 4
"""Characters that one may stand for. A few stand for whole phrases, and would make a text 18 times as long."""

_LOOK_ALIKES: Final = {
    # Cyrillic, lower case. Those without a twin stay, so Russian stays readable to a Russian list folded likewise.
    **dict(zip("авеёкмнорстухіїјѕԁԛԝһӏҽѵ", "abeekmhopctyxiijsdqwhlev", strict=True)),
    **dict(zip("αβεηικνορτυχγω", "abenikvoptuxyw", strict=True)),
    **dict(zip("օոսհց", "onuhg", strict=True)),  # Armenian
    **dict(zip("ıɑɡłøđƒɩʟɪʏ", "iaglodfiliy", strict=True)),
    **dict(zip("ᴀʙᴄᴅᴇꜰɢʜᴊᴋᴍɴᴏᴘʀꜱᴛᴜᴠᴡᴢ", "abcdefghjkmnoprstuvwz", strict=True)),
    **{chr(0x1F150 + n): chr(97 + n) for n in range(26)},  # letters in black circles, squares, and of flags
    **{chr(0x1F170 + n): chr(97 + n) for n in range(26)},
    **{chr(0x1F1E6 + n): chr(97 + n) for n in range(26)},
    "æ": "ae",
    "œ": "oe",
    "’": "'",
    "ʼ": "'",
    "‐": "-",
    "‑": "-",
    "–": "-",
    "—": "-",
}
_FILLERS: Final = "\u115f\u1160\u3164\uffa0"
"""Blank, but letters to Unicode."""

_SIGNS: Final = "@$!|+€£"
"""Signs that stand for letters."""
_MARKS: Final = ".-_*'~·"
"""Marks that may be put between the letters of a word."""
_NO_SPACES: Final = ((0x3041, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""Scripts without spaces between words: each character is a word of its own, and a word is a phrase of them."""

_FIRST_WITHOUT_SPACES: Final = chr(_NO_SPACES[0][0])

_LEET: Final = str.maketrans("034567892@$!|+€£", "oeasgtbgzasi1tel")
_LEET_SIGN: Final = re.compile(r"[0-9@$!|+€£]")
_LETTER: Final = re.compile(r"[^\W\d_]")
_STRETCHED: Final = re.compile(r"([^\W\d_])\1{2,}")
_DOUBLED: Final = re.compile(r"(.)\1+")
_SPLIT: Final = re.compile(r"[.\-_*'~·]+")

_LEAST_LETTERS: Final = 3
"""In a row before they are taken for a word."""
_LEAST_PIECE: Final = 3
"""Letters of a word that letters in a row may be made of, other than these."""
_BETWEEN: Final = frozenset(
    {"an", "and", "at", "by", "for", "he", "her", "him", "his", "in", "is", "it", "me", "my", "no", "not", "now", "of"}
    | {
        "on",
        "or",
        "our",
        "out",
        "she",
        "so",
        "the",
        "them",
        "they",
        "to",
        "up",
        "us",
        "was",
        "we",
        "with",
        "you",
        "your",
    }
    | {"drawing", "image", "painting", "photo", "picture", "scene", "video"}
)
_LONGEST_PIECE: Final = 24


class _Folding(dict[int, str]):
    """What each character stands for, found when it is first needed: in lower case, without accents."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _folded(chr(code))
        return folded


def _folded(character: str) -> str:
    if character in _LOOK_ALIKES:
        return _LOOK_ALIKES[character]
    parts = unicodedata.normalize("NFKD", character)
    if len(parts) > _LONGEST_EXPANSION:
        return " "
    return "".join(_plain(letter) for part in parts for letter in part.casefold())


def _plain(letter: str) -> str:
    letter = _LOOK_ALIKES.get(letter, letter)
    if letter.isspace():
        return " "
    if letter in _FILLERS or unicodedata.category(letter[0]) in {"Mn", "Me", "Cf", "Cc", "Co", "Cn", "Cs"}:
        return ""
    if any(first <= ord(letter[0]) <= last for first, last in _NO_SPACES):
        return f" {letter} "
    return letter if letter.isalnum() or letter in _SIGNS or letter in _MARKS else " "


_FOLDING: Final = _Folding()


def fold(text: str) -> str:
    """In lower case and plain letters, with nothing but digits, letter-like signs, marks inside words, and spaces."""
    return text.translate(_FOLDING)


class Reader:
    """Reads texts for someone who looks for the words of `vocabulary`, which are folded."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._known = frozenset(vocabulary)
        self._pieces = _BETWEEN.union(word for word in self._known if _LEAST_PIECE <= len(word) <= _LONGEST_PIECE)
        self._by_skeleton: dict[str, list[str]] = {}
        for word in sorted(self._known):
            self._by_skeleton.setdefault(_DOUBLED.sub(r"\1", word), []).append(word)

    def read(self, text: str) -> list[Readings]:
        """The words of a text in order."""
        words: list[Readings] = []
        alone: list[str] = []  # letters that stand alone, so far in a row
        for chunk in fold(text).split():
            plain = chunk.isalpha()
            for readings in [(chunk,)] if plain else self._parts(chunk):
                if len(readings[0]) == 1 and readings[0] < _FIRST_WITHOUT_SPACES:
                    alone.append(readings[0])
                    continue
                if alone:
                    words += self._row(alone)
                    alone = []
                words.append(self._stretches(readings) if plain and len(chunk) > 1 else readings)
        return words + self._row(alone) if alone else words

    def _parts(self, chunk: str) -> list[Readings]:
        """The words of what stands between two spaces."""
        # An exclamation mark after a word is one; inside it stands for a letter.
        parts = [part for part in _SPLIT.split(chunk.strip("!|+" + _MARKS).removesuffix("'s")) if part]
        words = [self._spellings(part) for part in parts]
        if len(parts) > 1 and max(map(len, parts)) > 1:
            words[0] += self._spellings("".join(parts))
        return words

    def _row(self, letters: list[str]) -> list[Readings]:
        """Letters in a row: one word, several that are known, or what they were."""
        row = "".join(letters)
        if len(row) < _LEAST_LETTERS or 2 * sum(map(str.isalpha, row)) < len(row):
            return [(letter,) for letter in letters]
        spellings = self._spellings(row)
        if self._known.isdisjoint(spellings):
            for spelling in spellings:
                if pieces := self._divided(spelling):
                    return [(piece,) for piece in pieces]
        return [spellings]

    def _divided(self, row: str) -> list[str]:
        """The fewest known words that it is made of; empty when something is left, as the S of `s k i l l` is."""
        before: list[tuple[int, int] | None] = [
            (0, 0),
            *([None] * len(row)),
        ]  # number of words to here, last one's start
        for start in range(len(row)):
            if (here := before[start]) is None:
                continue
            for end in range(start + 1, min(start + _LONGEST_PIECE, len(row)) + 1):
                piece = row[start:end]
                if piece in self._pieces or (piece == "a" and start):
                    there = before[end]
                    if there is None or there[0] > here[0] + 1:
                        before[end] = here[0] + 1, start
        pieces, end = [], len(row)
        while end:
            if (last := before[end]) is None:
                return []
            pieces.append(row[last[1] : end])
            end = last[1]
        return pieces[::-1]

    def _spellings(self, word: str) -> Readings:
        """With its digits and signs, and with them taken for letters. One that has no letter is a number."""
        if len(word) < _LEAST_LETTERS or not _LEET_SIGN.search(word) or not _LETTER.search(word):
            return self._stretches((word,))
        letters = word.translate(_LEET)
        if "1" not in letters:
            return self._stretches((word, letters))
        # A 1 is an i or an l, and in `k111` it is both.
        first = letters.replace("1", "i", 1)
        return self._stretches((word, first.replace("1", "i"), letters.replace("1", "l"), first.replace("1", "l")))

    def _stretches(self, readings: Readings) -> Readings:
        """And those of known words with the same letters, where a letter is there three times or more."""
        if not _STRETCHED.search(" ".join(readings)):
            return readings
        more = list(readings)
        for reading in filter(_STRETCHED.search, readings):
            more += _STRETCHED.sub(r"\1", reading), _STRETCHED.sub(r"\1\1", reading)
            more += self._by_skeleton.get(_DOUBLED.sub(r"\1", reading), ())
        return tuple(dict.fromkeys(more))
