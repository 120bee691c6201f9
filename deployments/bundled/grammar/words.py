"""The words that a small checkpoint learnt, and their synonyms, typos and translations: `words.yaml`."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

_LISTED: Final[Mapping[str, Any]] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), Loader=yaml.CSafeLoader)
COLOURS: Final[Sequence[str]] = _LISTED["colours"]
SHAPES: Final[Sequence[str]] = _LISTED["shapes"]
SIZES: Final[Sequence[str]] = _LISTED["sizes"]

_TABLE: Final = re.compile(r"\[\s*\{")
"""Start of a prompt's region table, which is left as it is."""
_IMAGE: Final = re.compile(r"<?ref_image_(\d\d?)>?", re.ASCII)
"""References of prompts to input images; the first one is 0."""
_BREAK, _PIECE = re.compile(r"[.;:]\s|\n"), re.compile(r"[^\W\d_]+|[0-9]+|,")
_ELIDED: Final = re.compile("\\b(?:[cdjlmnst]|qu)['\N{RIGHT SINGLE QUOTATION MARK}](?=[^\\W\\d_]{3})", re.IGNORECASE)
"""French articles: `l'étoile`."""
_APOSTROPHES: Final = re.compile("['\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}]")
_MAX_PHRASE, _MIN_TYPO, _MIN_STEM, _MAX_WORD = 4, 5, 3, 20
"""Words of a phrase; letters of a word that may have a typo, of the stem of a plural, and of a word that is looked
up."""


def normalize(prompt: str, *, keep_unknown: bool = False) -> list[str]:
    """Returns the words, numbers and commas before a region table, in known words. Drops other words unless
    `keep_unknown`."""
    pieces = _without_openings(list(_translate(_without_openings(_pieces(split(prompt)[0])))))
    return [piece for piece in pieces if keep_unknown or piece in _KNOWN or not piece.isalpha()]


def find_unknown(prompt: str) -> list[str]:
    """Returns the words that mean nothing to the checkpoint, once each, in lower case and without accents."""
    pieces = normalize(prompt, keep_unknown=True)
    return list(dict.fromkeys(piece for piece in pieces if piece.isalpha() and piece not in _KNOWN))


def split(prompt: str) -> tuple[str, str]:
    """Returns the text and the region table that follows it."""
    table = _TABLE.search(prompt)
    return (prompt, "") if table is None else (prompt[: table.start()], prompt[table.start() :])


def _pieces(text: str) -> list[str]:
    """Returns words, numbers and commas in lower case without accents; drops all other characters."""
    plain = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", _ELIDED.sub("", text))).casefold()
    bare = "".join(letter for letter in plain if unicodedata.category(letter) not in ("Mn", "Mc", "Me", "Cf"))
    named = _IMAGE.sub(lambda match: f" image {int(match[1]) + 1} ", bare.replace("œ", "oe").replace("&", " and "))
    pieces = _PIECE.findall(_BREAK.sub(", ", named))
    return [piece for piece in pieces if piece == "," or piece.isalpha() or piece.isdecimal()]


def _translate(pieces: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(pieces):
        for length in range(min(_MAX_PHRASE, len(pieces) - at), 0, -1):
            phrase = " ".join(pieces[at : at + length])
            if phrase in _MEANINGS:
                yield from _MEANINGS[phrase].split()
                break
        else:
            length = 1
            yield from _correct(pieces[at]).split()
        at += length


def _correct(word: str) -> str:
    """Returns the meaning of an unlisted word: that of its singular, or of the only listed word within one letter."""
    if word in _KNOWN or not word.isalpha() or len(word) > _MAX_WORD:
        return word
    for stem in (word.removesuffix("s"), word.removesuffix("es")):
        if word != stem and len(stem) >= _MIN_STEM and (stem in _KNOWN or stem in _MEANINGS):
            return _MEANINGS.get(stem, stem)
    if len(word) < _MIN_TYPO:
        return word
    pairs = ((gap, *other) for gap, shorter in _shortened(word) for other in _SPELLINGS.get(shorter, ()))
    alike = {listed for gap, other, listed in pairs if abs(gap - other) <= 1 or 0 in (gap, other)}
    near = {_MEANINGS.get(listed, listed) for listed in alike}
    return near.pop() if len(near) == 1 else word


def _shortened(word: str) -> Iterator[tuple[int, str]]:
    """Yields the word, and the word without each letter but the first, with its index: words one edit apart share
    one."""
    yield 0, word
    yield from ((at, word[:at] + word[at + 1 :]) for at in range(1, len(word)))


def _without_openings(pieces: list[str]) -> list[str]:
    begin = 0
    while begin < len(pieces):
        starts = (" ".join(pieces[begin : begin + length]) for length in range(_MAX_PHRASE, 0, -1))
        opening = next((start for start in starts if start in _OPENINGS), None)
        if opening is None:
            break
        begin += len(opening.split())
    return pieces[begin:]


def _plain(phrase: str) -> str:
    return " ".join(_pieces(phrase))


_KNOWN: Final = {word for name in (*COLOURS, *SHAPES, *SIZES, *_LISTED["others"]) for word in name.split()}
_OPENINGS: Final = {",", *map(_plain, _LISTED["openings"])}
_MEANINGS: Final = {
    **{_plain(phrase): meaning for meaning, phrases in _LISTED["said_for"].items() for phrase in phrases},
    **{_plain(phrase): "" for phrase in _LISTED["fillers"]},
}
_SPELLINGS: Final[defaultdict[str, list[tuple[int, str]]]] = defaultdict(list)
for _word in (*_KNOWN, *_MEANINGS):
    if _word.isalpha() and len(_word) >= _MIN_TYPO:
        for _gap, _shorter in _shortened(_word):
            _SPELLINGS[_shorter].append((_gap, _word))
