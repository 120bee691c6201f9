"""The words that a small checkpoint learnt, and what else people say for them: `words.yaml`."""

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
"""Where a prompt's region table begins; that has a form already."""
_IMAGE: Final = re.compile(r"<?ref_image_(\d\d?)>?", re.ASCII)
"""How prompts name an image that was sent, the first one being 0."""
_BREAK, _PIECE = re.compile(r"[.;:]\s|\n"), re.compile(r"[^\W\d_]+|[0-9]+|,")
_ELIDED: Final = re.compile("\\b(?:[cdjlmnst]|qu)['\N{RIGHT SINGLE QUOTATION MARK}](?=[^\\W\\d_]{3})", re.IGNORECASE)
"""French articles and the like: `l'étoile`."""
_APOSTROPHES: Final = re.compile("['\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}]")
_LONGEST, _TYPO_LENGTH, _STEM_LENGTH, _WORD_LENGTH = 4, 5, 3, 20
"""Words of a phrase; letters from which on a word may have one wrong, or a plural, and up to which it may mean any."""


def known(prompt: str, *, keep_unknown: bool = False) -> list[str]:
    """Its words, numbers and commas before a region table, in known words; others stay with `keep_unknown` alone."""
    pieces = _without_openings(list(_understood(_without_openings(_pieces(split(prompt)[0])))))
    return [piece for piece in pieces if keep_unknown or piece in _KNOWN or not piece.isalpha()]


def unknown(prompt: str) -> list[str]:
    """Words of it that say nothing to such a checkpoint, once each, in lower case and without accents."""
    pieces = known(prompt, keep_unknown=True)
    return list(dict.fromkeys(piece for piece in pieces if piece.isalpha() and piece not in _KNOWN))


def split(prompt: str) -> tuple[str, str]:
    """What is told, and the region table that follows it."""
    table = _TABLE.search(prompt)
    return (prompt, "") if table is None else (prompt[: table.start()], prompt[table.start() :])


def _pieces(text: str) -> list[str]:
    """In lower case and without accents; what Unicode has beside words, numbers and commas is none."""
    plain = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", _ELIDED.sub("", text))).casefold()
    bare = "".join(letter for letter in plain if unicodedata.category(letter) not in ("Mn", "Mc", "Me", "Cf"))
    named = _IMAGE.sub(lambda match: f" image {int(match[1]) + 1} ", bare.replace("œ", "oe").replace("&", " and "))
    pieces = _PIECE.findall(_BREAK.sub(", ", named))
    return [piece for piece in pieces if piece == "," or piece.isalpha() or piece.isdecimal()]


def _understood(pieces: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(pieces):
        for length in range(min(_LONGEST, len(pieces) - at), 0, -1):
            phrase = " ".join(pieces[at : at + length])
            if phrase in _MEANINGS:
                yield from _MEANINGS[phrase].split()
                break
        else:
            length = 1
            yield from _corrected(pieces[at]).split()
        at += length


def _corrected(word: str) -> str:
    """A word that is not listed: what it is the plural of, or the only one that is a letter away."""
    if word in _KNOWN or not word.isalpha() or len(word) > _WORD_LENGTH:
        return word
    for stem in (word.removesuffix("s"), word.removesuffix("es")):
        if word != stem and len(stem) >= _STEM_LENGTH and (stem in _KNOWN or stem in _MEANINGS):
            return _MEANINGS.get(stem, stem)
    if len(word) < _TYPO_LENGTH:
        return word
    pairs = ((gap, *other) for gap, shorter in _shortened(word) for other in _SPELLINGS.get(shorter, ()))
    alike = {listed for gap, other, listed in pairs if abs(gap - other) <= 1 or 0 in (gap, other)}
    near = {_MEANINGS.get(listed, listed) for listed in alike}
    return near.pop() if len(near) == 1 else word


def _shortened(word: str) -> Iterator[tuple[int, str]]:
    """The word, and what is left of it without a letter after the first, with its place: those one off meet."""
    yield 0, word
    yield from ((at, word[:at] + word[at + 1 :]) for at in range(1, len(word)))


def _without_openings(pieces: list[str]) -> list[str]:
    begin = 0
    while begin < len(pieces):
        starts = (" ".join(pieces[begin : begin + length]) for length in range(_LONGEST, 0, -1))
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
    if _word.isalpha() and len(_word) >= _TYPO_LENGTH:
        for _gap, _shorter in _shortened(_word):
            _SPELLINGS[_shorter].append((_gap, _word))
