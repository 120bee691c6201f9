"""Judges texts by a list of words and of words that are harmful together: no model, and nothing to download.

The list (`lexicon*.yaml`, and what the operator adds) has terms with the score of their category; groups of words, and
combinations of groups that score where words of them are near each other; exceptions, phrases in which no word counts
(`shooting star`), and words that their accents make harmless (`góry`, mountains); and what eases: words that tell of a
context in which the weaker terms mean less. The highest score counts, so a reader of the list can tell why a text was
refused. Texts are read as `normalised.py` does, disguises undone, and the list is folded in the same way.

It knows words, not meaning: what is harmful without a word of the list passes. Guard and TextClassifier read meaning.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from deployments.contract.moderation import JudgeSpec, Scores
from deployments.moderation.normalised import Reader, Readings
from deployments.moderation.word_list import MINOR, Combination, Easing, Phrase, WordList, read

_OWN: Final = tuple(
    Path(__file__).with_name(f"lexicon{part}.yaml") for part in ("", "_slang", "_languages", "_harmless")
)

_ADULT: Final = 18
_NUMBERS: Final = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen"),
)
_AGES: Final = (*map(str, range(1, _ADULT)), *(f"0{age}" for age in range(1, 10)), *_NUMBERS)

_CACHED: Final = 20_000

Span: TypeAlias = tuple[int, int]
"""First word, and the one after the last."""


@dataclass(slots=True)
class _Node:
    """Of a tree of phrases, word by word."""

    following: dict[str, _Node] = field(default_factory=dict)
    terms: list[tuple[str, float]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    harmless: bool = False


@dataclass(slots=True)
class _Found:
    terms: list[tuple[Span, str, float]] = field(default_factory=list)
    groups: dict[str, list[Span]] = field(default_factory=dict)
    harmless: list[Span] = field(default_factory=list)


class Lexicon:
    """Not to be used by two threads at a time."""

    def __init__(self, spec: JudgeSpec) -> None:
        """`spec.checkpoint` may name another file like lexicon.yaml, which adds to it. Raises CheckpointError."""
        self._root = _Node()
        self._exact: dict[str, list[str]] = {}
        self._stems: dict[str, list[str]] = {}
        self._combinations: list[Combination] = []
        self._easings: list[Easing] = []
        groups: set[str] = set()
        misspelt: set[str] = set()
        accented: set[str] = set()
        for file in [*_OWN, *([Path(spec.checkpoint)] if spec.checkpoint else [])]:
            listed = read(file, groups)
            groups |= set(listed.groups)
            misspelt.update(*(_meant(word) for word in listed.misspelt))
            accented.update(listed.accented)
            self._add(listed)
        self._lengths = sorted({len(stem) for stem in self._stems})
        # In both cases of their first letters alone: `re.IGNORECASE` knows no dotless i.
        spelt = sorted(map(re.escape, accented | {word.capitalize() for word in accented}))
        self._accented = re.compile(rf"(?<!\w)(?:{'|'.join(spelt)})(?!\w)")
        self._reader = Reader([*self._exact, *self._stems], misspelt)
        self._symbols: dict[Readings, tuple[str, ...]] = {}

    def judge(self, texts: Sequence[str]) -> list[Scores]:
        return [self._judged(text) for text in texts]

    def _judged(self, text: str) -> Scores:
        found = self._found(self._reader.read(self._accented.sub(" ", text)))
        hits = [(category, score) for span, category, score in found.terms if not _inside(span, found.harmless)]
        places = {
            name: places
            for name, spans in found.groups.items()
            if (places := [span for span in spans if not _inside(span, found.harmless)])
        }
        hits += [(one.category, one.score) for one in self._combinations if _meets(one, places)]
        scores: dict[str, float] = {}
        for category, score in hits:
            eased = score
            for easing in self._easings:
                if easing.category == category and score < easing.under and easing.by in places:
                    eased = min(eased, score * easing.times)
            scores[category] = max(eased, scores.get(category, 0.0))
        return scores

    def _found(self, words: list[Readings]) -> _Found:
        """All phrases of the list, wherever they start."""
        found = _Found()
        symbols = [self._known(readings) for readings in words]
        following = self._root.following
        for start, first in enumerate(symbols):
            nodes = [following[symbol] for symbol in first if symbol in following]
            end = start
            while nodes:
                end += 1
                for node in nodes:
                    _note(node, (start, end), found)
                if end == len(symbols):
                    break
                nodes = [
                    node.following[s] for node in nodes if node.following for s in symbols[end] if s in node.following
                ]
        return found

    def _known(self, readings: Readings) -> tuple[str, ...]:
        """The words of the list that a word may be."""
        if (known := self._symbols.get(readings)) is not None:
            return known
        symbols: dict[str, None] = {}
        for reading in readings:
            if found := self._exact.get(reading):
                symbols.update(dict.fromkeys(found))
            for length in self._lengths:
                if length > len(reading):
                    break
                if found := self._stems.get(reading[:length]):
                    symbols.update(dict.fromkeys(found))
        known = tuple(symbols)
        if len(self._symbols) >= _CACHED:
            self._symbols.clear()
        if sum(map(len, readings)) <= 100:  # hostile text mustn't fill the memory
            self._symbols[readings] = known
        return known

    def _add(self, listed: WordList) -> None:
        for name, phrases in listed.groups.items():
            for phrase in phrases:
                self._node(phrase).groups.append(name)
        for phrase, category, score in listed.terms:
            self._node(phrase).terms.append((category, score))
        for phrase in listed.exceptions:
            self._node(phrase).harmless = True
        self._combinations += listed.combinations
        self._easings += listed.easings

    def _node(self, phrase: Phrase) -> _Node:
        """Where in the tree it ends."""
        node = self._root
        for word in phrase:
            self._learn(word)
            node = node.following.setdefault(word, _Node())
        return node

    def _learn(self, word: str) -> None:
        """From now on it is known by all its forms."""
        if word.endswith("*"):
            forms, known = {word.removesuffix("*")}, self._stems
        else:
            forms, known = _meant(word), self._exact
        for form in forms:
            symbols = known.setdefault(form, [])
            if word not in symbols:
                symbols.append(word)


def _note(node: _Node, span: Span, found: _Found) -> None:
    if node.harmless:
        found.harmless.append(span)
    for category, score in node.terms:
        found.terms.append((span, category, score))
    for group in node.groups:
        found.groups.setdefault(group, []).append(span)


def _inside(span: Span, others: list[Span]) -> bool:
    """Whether one of `others`, which are in order of their starts and short, covers it."""
    at = bisect_right(others, (span[0], 1 << 60))
    return any(end >= span[1] for _, end in others[max(0, at - 8) : at])


def _meets(one: Combination, places: Mapping[str, list[Span]]) -> bool:
    first, *others = one.near
    if any(group not in places for group in one.near):
        return False
    return all_near(places[first], [places[group] for group in others], one.within, one.ordered)


def all_near(first: list[Span], others: list[list[Span]], within: int, ordered: bool) -> bool:
    """Whether some span of `first` has one of each of `others` near it, apart from itself.

    All are in order of their starts, so the nearest ones are found by halving.
    """
    ends = [sorted(end for _, end in other) for other in others]
    for start, end in first:
        for other, other_ends in zip(others, ends, strict=True):
            after = bisect_left(other, (end, 0))
            if after < len(other) and other[after][0] - end <= within:
                continue
            before = bisect_right(other_ends, start) - 1
            if ordered or before < 0 or start - other_ends[before] > within:
                break
        else:
            return True
    return False


def _meant(word: str) -> set[str]:
    """All that a word of a list stands for."""
    if word.startswith(MINOR):
        return {age + word.removeprefix(MINOR) for age in _AGES}
    return _forms(word.removesuffix("~")) if word.endswith("~") else {word}


def _forms(word: str) -> set[str]:
    """The regular English forms of a noun or a verb; some of them exist for none."""
    forms = {word, f"{word}s"}
    if word.endswith("e"):
        return forms | {f"{word}d", f"{word[:-1]}ing", f"{word}r", f"{word}rs"}
    if word.endswith("y") and word[-2] not in "aeiou":
        return forms | {f"{word[:-1]}ies", f"{word[:-1]}ied", f"{word}ing"}
    if word.endswith(("s", "x", "z", "ch", "sh")):
        forms.add(f"{word}es")
    stems = [word]
    if word[-1] not in "aeiouwxy" and word[-2] in "aeiou" and word[-3:-2] not in "aeiou":
        stems.append(word + word[-1])
    return forms | {stem + ending for stem in stems for ending in ("ed", "ing")}
