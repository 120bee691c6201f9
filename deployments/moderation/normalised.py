"""Undoes what hides a word from a word list, and leaves plain text plain.

A text becomes a row of words, each with every reading that it may have: as it is written, with digits and signs taken
for the letters they stand for (`k1ll`), with its stretched letters shortened (`kiiill`), without the marks inside it
(`ki-ll`), and as `disguised.py` finds it (`k*ll`, `killaman`). Letters that stand alone in a row (`k i l l`, `k.i.l.l`)
become one word. Look-alike letters, ligatures, accents and invisible characters are replaced before that (Unicode TR39,
"confusables", and NFKD, UAX 15). A few pictures (emoji) stay, as words.

Nothing is a reading that isn't one by spelling alone: `3 red balls` keeps its 3, and a letter or two on their own stay
as they are. The work is linear in the length of the text: but for kana and Hangul, which are put together first, every
character is folded on its own, never in its row.
"""

# ruff: noqa: RUF001 (letters that look like others are what this is about)

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, TypeAlias

from deployments.moderation.disguised import LONGEST, Disguised

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
    **dict.fromkeys("•●∗✱✳", "*"),
}
_FILLERS: Final = "\u115f\u1160\u3164\uffa0"
"""Blank, but letters to Unicode."""

_SIGNS: Final = "@$!|+€£"
"""Signs that stand for letters."""
_MARKS: Final = ".-_*#'~·"
"""Marks that may be put between the letters of a word."""
_NO_SPACES: Final = ((0x3041, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""Scripts without spaces between words: each character is a word of its own, and a word is a phrase of them."""

_FIRST_WITHOUT_SPACES: Final = chr(_NO_SPACES[0][0])

_SYLLABLES: Final = ((0x3041, 0x30FF), (0xAC00, 0xD7A3))
"""Characters that are whole as they are: without the marks of kana (`ヌード`, `ヌート`), or by the letters of a Hangul
syllable (`나치`, then the beginning of `나침반`), a word would be another."""
_PARTS: Final = re.compile("[\u1100-\u11ff\u3041-\u30ff\uff66-\uffdc]+")
"""What such a character may be written by instead, as half a width or letter by letter."""

_PICTURES: Final = frozenset("🍆🍑💦👅👉👌🔞🌽🔪🔫🩸💣💊💉🔌🍃💀👃")
"""That say something to a list of words, each a word of its own. Others are blank."""

_LEET: Final = str.maketrans("034567892@$!|+€£", "oeasgtbgzasi1tel")
_LEET_SIGN: Final = re.compile(r"[0-9@$!|+€£]")
_LEET_MASKED: Final = str.maketrans("0345@$!1", "oeasasii")
_LETTER: Final = re.compile(r"[^\W\d_]")
_STRETCHED: Final = re.compile(r"([^\W\d_])\1{2,}")
_DOUBLED: Final = re.compile(r"(.)\1+")
_SPLIT: Final = re.compile(r"[.\-_*#'~·]+")

_CACHED: Final = 20_000

_LEAST_LETTERS: Final = 3
"""In a row before they are taken for a word."""


class _Folding(dict[int, str]):
    """What each character stands for, found when it is first needed: in lower case, without accents."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _folded(chr(code))
        return folded


def _folded(character: str) -> str:
    if character in _LOOK_ALIKES:
        return _LOOK_ALIKES[character]
    if _within(character, _SYLLABLES):
        return _plain(character)
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
    if letter in _PICTURES or _within(letter[0], _NO_SPACES):
        return f" {letter} "
    return letter if letter.isalnum() or letter in _SIGNS or letter in _MARKS else " "


def _within(character: str, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


_FOLDING: Final = _Folding()


def fold(text: str) -> str:
    """In lower case and plain letters, with nothing but digits, letter-like signs, marks inside words, and spaces."""
    return _PARTS.sub(_composed, text).translate(_FOLDING)


def _composed(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", found[0])


class Reader:
    """Reads texts for someone who looks for the words of `vocabulary`, which are folded.

    Those that are `misspelt` as well are known with a wrong letter, too.
    """

    def __init__(self, vocabulary: Iterable[str], misspelt: Iterable[str] = ()) -> None:
        self._known = frozenset(vocabulary)
        self._disguised = Disguised(self._known, misspelt)
        self._by_skeleton: dict[str, list[str]] = {}
        for word in sorted(self._known):
            self._by_skeleton.setdefault(_DOUBLED.sub(r"\1", word), []).append(word)
        self._plain: dict[str, list[Readings]] = {}

    def read(self, text: str) -> list[Readings]:
        """The words of a text in order."""
        words: list[Readings] = []
        alone: list[str] = []  # letters that stand alone, so far in a row
        pictures: list[Readings] = []  # between them
        for chunk in fold(text).split():
            if chunk in _PICTURES:
                (pictures if alone else words).append((chunk,))
                continue
            plain = chunk.isalpha()
            for readings in [(chunk,)] if plain else self._parts(chunk):
                if len(readings[0]) == 1 and readings[0] < _FIRST_WITHOUT_SPACES:
                    alone.append(readings[0])
                    continue
                if alone:
                    words += self._row(alone) + pictures
                    alone, pictures = [], []
                if plain and len(chunk) > 1:
                    words += self._together(chunk)
                else:
                    words.append(readings)
        return words + self._row(alone) + pictures if alone else words

    def _together(self, word: str) -> list[Readings]:
        """A word of letters alone, and those that it is made of."""
        if (known := self._plain.get(word)) is not None:
            return known
        readings = self._stretches((word,))
        if (meant := self._disguised.misspelt(word)) is not None:
            readings += (meant,)
        known = [readings, *((piece,) for piece in self._disguised.apart(word))]
        if len(self._plain) >= _CACHED:
            self._plain.clear()
        if len(word) <= LONGEST:  # hostile text mustn't fill the memory
            self._plain[word] = known
        return known

    def _parts(self, chunk: str) -> list[Readings]:
        """The words of what stands between two spaces."""
        # An exclamation mark after a word is one; inside it stands for a letter.
        parts = [part for part in _SPLIT.split(chunk.strip("!|+" + _MARKS).removesuffix("'s")) if part]
        words = [self._spellings(part) for part in parts]
        if len(parts) > 1 and max(map(len, parts)) > 1:
            words[0] += self._spellings("".join(parts))
            if hidden := self._disguised.unmasked(chunk.strip("!|+" + _MARKS).translate(_LEET_MASKED)):
                words.append(tuple(hidden))
        return words

    def _row(self, letters: list[str]) -> list[Readings]:
        """Letters in a row: one word, several that are known, or what they were."""
        row = "".join(letters)
        if len(row) < _LEAST_LETTERS or 2 * sum(map(str.isalpha, row)) < len(row):
            return [(letter,) for letter in letters]
        spellings = self._spellings(row)
        if self._known.isdisjoint(spellings):
            for spelling in spellings:
                if pieces := self._disguised.divided(spelling):
                    return [(piece,) for piece in pieces]
        return [spellings]

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
