"""What a checkpoint knows of people's words: how a prompt is put before it, and what it will not understand.

Published text encoders read prompts as people type them. A small one that learnt a few hundred words ships
`words.json` beside its weights, which says what else people say for them. The same is done to what it practises, so
that nothing it meets is new to it in form alone.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

FILE: Final = "words.json"

_TABLE: Final = re.compile(r"\[\s*\{")
"""Where a prompt's region table begins; that has a form already."""
_PICTURE: Final = re.compile(r"<?ref_image_(\d\d?)>?", re.ASCII)
"""How prompts name a picture that was sent, the first one being 0."""
_BREAK: Final = re.compile(r"[.;:]\s|\n")
_NUMBERING: Final = re.compile(r"^\s*[1-9][.)]\s|(?<=\s)[1-9]\)\s", re.MULTILINE)
"""Of a list: `1) a star 2) a moon`."""
_PIECE: Final = re.compile(r"[^\W\d_]+|[0-9]+|,")
_ELIDED: Final = re.compile("\\b(?:[cdjlmnst]|qu)['\N{RIGHT SINGLE QUOTATION MARK}](?=[^\\W\\d_]{3})", re.IGNORECASE)
"""French articles and the like: `l'étoile`."""
_APOSTROPHES: Final = re.compile("['\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}]")
_UNSEEN: Final = frozenset({"Mn", "Mc", "Me", "Cf"})
"""Unicode's categories of what belongs to a letter (accents) or shows nothing (soft hyphens, directions)."""
_LONGEST: Final = 4
"""Words of a phrase."""
_ROUNDS: Final = 4
"""In which words that stand beside each other are taken together; two are rare."""
_TYPO_LENGTH: Final = 5
"""Letters from which on a word may have one wrong, which is not its first."""
_STEM_LENGTH: Final = 3
"""Letters of a word that may have a plural."""
_NUMBERS: Final = frozenset({"two", "three", "four", "five"})


@dataclass(frozen=True)
class Words:
    __pydantic_config__ = ConfigDict(extra="forbid")

    known: tuple[str, ...]
    said_for: Mapping[str, str]
    """By a word or a phrase, the known one that it means."""
    openings: tuple[str, ...]
    """Phrases that say nothing at the beginning of a prompt."""
    fillers: tuple[str, ...]
    """Words and phrases that say nothing anywhere."""
    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    """Of the things that are drawn."""
    sizes: tuple[str, ...]
    nouns: tuple[str, ...]
    """What else has an article."""
    adjectives: tuple[str, ...]
    """What else comes between an article and a noun."""
    edits: tuple[str, ...]
    """What requests to change a picture begin with: their things are there already, and get no `a`."""

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """Those of the checkpoint in `folder`; None where it reads prompts as they are. Raises ValueError."""
        file = folder / FILE
        if not file.is_file():
            return None
        try:
            return TypeAdapter(cls).validate_json(file.read_bytes())
        except ValidationError as problem:
            raise ValueError(f"{file} is no list of words: {problem}") from problem

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def normalised(self, prompt: str, *, keep_unknown: bool = False) -> str:
        """The same in known words alone, in lower case, with articles; a region table stays as it is.

        With `keep_unknown` the others stay, too: a tuned model may have learnt one.
        """
        _, table = split(prompt)
        told = " ".join(self._with_articles(self.pieces(prompt, keep_unknown=keep_unknown)))
        return f"{told} {table}".replace(" ,", ",").strip(" ,")

    def pieces(self, prompt: str, *, keep_unknown: bool = False) -> list[str]:
        """Its words, numbers and commas before a region table, in known words."""
        told, _ = split(prompt)
        meant = [piece for piece in self._read(told) if keep_unknown or piece in self._known or not _is_word(piece)]
        return self._settled(meant)

    def unknown(self, prompt: str) -> tuple[str, ...]:
        """Its words that mean nothing here, in order, each once; single Latin letters are none (`8k`).

        They are in lower case, without accents, and have nothing but letters.
        """
        told, _ = split(prompt)
        words = (piece for piece in self._read(told) if _is_word(piece) and piece not in self._known)
        return tuple(dict.fromkeys(word for word in words if len(word) > 1 or not word.isascii()))

    def _read(self, told: str) -> list[str]:
        """Its pieces, in known words where they mean something. What opens it may be seen only in these."""
        said = self._without_openings(_pieces(told))
        return self._without_openings(list(self._understood(said)))

    def _settled(self, pieces: list[str]) -> list[str]:
        """The same once nothing makes a phrase with what it came to stand beside: `light` and `maroon`, a light red."""
        for _ in range(_ROUNDS):
            before = pieces
            pieces = self._without_openings(list(self._understood(before)))
            if pieces == before:
                break
        return pieces

    def _understood(self, pieces: Sequence[str]) -> Iterator[str]:
        at = 0
        while at < len(pieces):
            for length in range(min(_LONGEST, len(pieces) - at), 0, -1):
                phrase = " ".join(pieces[at : at + length])
                if phrase in self._meanings:
                    yield from self._meanings[phrase].split()
                    break
            else:
                length = 1
                yield from self._corrected(pieces[at]).split()
            at += length

    def _corrected(self, word: str) -> str:
        """A word that is not listed: the only known one that it is the plural of, or one letter away from."""
        if word in self._known or not _is_word(word) or len(word) > self._longest:
            return word
        for ending in ("s", "es"):
            stem = word.removesuffix(ending)
            if word != stem and len(stem) >= _STEM_LENGTH:
                meaning = self._meanings.get(stem, self._corrected(stem))
                if meaning in self._spoken:
                    return meaning
        if len(word) < _TYPO_LENGTH:
            return word
        alike = {known for shorter in _shortened(word) for known in self._spellings.get(shorter, ())}
        near = {self._meanings.get(known, known) for known in alike if known[0] == word[0] and _one_off(word, known)}
        return near.pop() if len(near) == 1 else word

    def _without_openings(self, pieces: list[str]) -> list[str]:
        begin = 0
        while passed := self._opening(pieces, begin):
            begin += passed
        return pieces[begin:]

    def _opening(self, pieces: Sequence[str], at: int) -> int:
        """How many pieces, from `at` on, only open the prompt."""
        if pieces[at : at + 1] == [","]:
            return 1
        lengths = range(min(_LONGEST, len(pieces) - at), 0, -1)
        return next((length for length in lengths if " ".join(pieces[at : at + length]) in self._openings), 0)

    def _with_articles(self, pieces: Sequence[str]) -> list[str]:
        if pieces and pieces[0] in self.edits:
            return list(pieces)
        nouns, adjectives = self._nouns, self._adjectives
        told: list[str] = []
        begin = 0
        for piece in pieces:
            if piece not in adjectives and piece not in nouns:
                begin = len(told) + 1
            told.append(piece)
            if piece in nouns:
                while begin > 1 and told[begin - 1] == "and" and told[begin - 2] in adjectives:
                    begin -= 2  # a dark red and white background
                    while begin and told[begin - 1] in adjectives:
                        begin -= 1
                article = "an" if told[begin][0] in "aeiou" else "a"
                if begin == 0 or told[begin - 1] not in _DETERMINERS:
                    told.insert(begin, article)
                elif told[begin - 1] in ("a", "an"):
                    told[begin - 1] = article
                begin = len(told)
        return told

    @cached_property
    def _known(self) -> Mapping[str, str]:
        return {word: word for word in self.known}

    @cached_property
    def _nouns(self) -> frozenset[str]:
        return frozenset((*self.shapes, *self.nouns))

    @cached_property
    def _adjectives(self) -> frozenset[str]:
        return frozenset(word for name in (*self.colours, *self.sizes, *self.adjectives) for word in name.split())

    @cached_property
    def _openings(self) -> frozenset[str]:
        return frozenset(" ".join(_pieces(phrase)) for phrase in self.openings)

    @cached_property
    def _meanings(self) -> Mapping[str, str]:
        meanings = {**self.said_for, **dict.fromkeys(self.fillers, "")}
        return {" ".join(_pieces(phrase)): meaning for phrase, meaning in meanings.items()}

    @cached_property
    def _spoken(self) -> frozenset[str]:
        """All that anything said is understood as."""
        return frozenset((*self.known, *self.said_for.values()))

    @cached_property
    def _spellings(self) -> Mapping[str, Sequence[str]]:
        """Words long enough to be meant by one with a wrong letter, by themselves and by what is left without a letter.

        Of two words that are one letter apart, one of these is the same.
        """
        found: defaultdict[str, list[str]] = defaultdict(list)
        for word in dict.fromkeys((*self.known, *self.said_for)):
            if word.isalpha() and len(word) >= _TYPO_LENGTH:
                for shorter in _shortened(word):
                    found[shorter].append(word)
        return dict(found)

    @cached_property
    def _longest(self) -> int:
        """Letters of the longest word that could be meant: a plural with one too many."""
        return max((len(word) for word in self._spellings), default=0) + len("es") + 1


_DETERMINERS: Final = frozenset({"a", "an", "the", "no", "this", "that", "its", *_NUMBERS})


def split(prompt: str) -> tuple[str, str]:
    """What is told, and the region table that follows it."""
    table = _TABLE.search(prompt)
    return (prompt, "") if table is None else (prompt[: table.start()], prompt[table.start() :])


_LIGATURES: Final = str.maketrans({"œ": "oe", "æ": "ae", "ø": "o"})


def _pieces(told: str) -> list[str]:
    """Words, whole numbers and commas, in lower case and without accents; what Unicode has beside these is none."""
    plain = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", _ELIDED.sub("", told))).casefold().translate(_LIGATURES)
    unseen = dict.fromkeys(ord(letter) for letter in set(plain) if unicodedata.category(letter) in _UNSEEN)
    seen = plain.translate(unseen).replace("&", " and ")
    listed = _NUMBERING.sub(", ", seen)
    named = _PICTURE.sub(lambda found: f" image {int(found[1]) + 1} ", listed)
    pieces = _PIECE.findall(_BREAK.sub(", ", named))
    return [piece for piece in pieces if piece == "," or piece.isalpha() or piece.isdecimal()]


def _is_word(piece: str) -> bool:
    return piece != "," and not piece.isdecimal()


def _shortened(word: str) -> Iterator[str]:
    """The word, and what is left of it without one letter."""
    yield word
    yield from {word[:at] + word[at + 1 :] for at in range(len(word))}


def _one_off(word: str, known: str) -> bool:
    """Whether one letter is wrong, missing, too many, or two neighbours are swapped."""
    if abs(len(word) - len(known)) > 1 or word == known:
        return False
    same = next((k for k, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), min(len(word), len(known)))
    left, right = word[same:], known[same:]
    if len(word) != len(known):
        return left[1:] == right or left == right[1:]
    return left[1:] == right[1:] or (left[:2] == right[1::-1] and left[2:] == right[2:])
