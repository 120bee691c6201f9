"""Judges texts by a list of words and of words that are harmful together: no model, and nothing to download.

The list (`lexicon.yaml`, and what the operator adds) has terms with the score of their category; groups of words, and
combinations of groups that score where words of them are near each other; exceptions, phrases in which no word counts
(`shooting star`); and what eases: words that tell of a context in which the weaker terms mean less. The highest score
counts, so a reader of the list can tell why a text was refused. Texts are read as `normalised.py` does, disguises
undone, and the list is folded in the same way.

It knows words, not meaning: what is harmful without a word of the list passes. Guard and TextClassifier read meaning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from deployments.contract.moderation import CATEGORIES, JudgeSpec, Scores
from deployments.families.base import CheckpointError
from deployments.moderation.normalised import Reader, Readings, fold

_OWN: Final = Path(__file__).with_name("lexicon.yaml")

_MINOR: Final = "<minor>"
"""Stands for an age below 18 in an entry, and with letters after it for the age and those letters: <minor>yo."""
_ADULT: Final = 18
_NUMBERS: Final = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen"),
)
_AGES: Final = (*map(str, range(1, _ADULT)), *(f"0{age}" for age in range(1, 10)), *_NUMBERS)

_CACHED: Final = 20_000
_NEAR: Final = 5
"""Words between the words of a combination at most, where it doesn't say."""

Span: TypeAlias = tuple[int, int]
"""First word, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Combination:
    """Scores where, for some word of the first group, one of each other group is `within` so many words of it."""

    category: str
    score: float
    near: tuple[str, ...]
    within: int = _NEAR
    ordered: bool = False
    """Whether the others must come after the first."""


@dataclass(frozen=True, slots=True)
class Easing:
    """Where a word of the group `by` is anywhere in the text, scores of `category` below `under` count `times`."""

    category: str
    by: str
    under: float
    times: float


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
        for file in [_OWN, *([Path(spec.checkpoint)] if spec.checkpoint else [])]:
            self._add(file, groups)
        self._lengths = sorted({len(stem) for stem in self._stems})
        self._reader = Reader([*self._exact, *self._stems])
        self._symbols: dict[Readings, tuple[str, ...]] = {}

    def judge(self, texts: Sequence[str]) -> list[Scores]:
        return [self._judged(text) for text in texts]

    def _judged(self, text: str) -> Scores:
        found = self._found(self._reader.read(text))
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

    def _add(self, file: Path, groups: set[str]) -> None:
        """The entries of a file; `groups` are those there are."""
        content = _content(file)
        for name, entries in _mapping(content.get("groups"), f"{file}: groups").items():
            groups.add(name)
            for node in self._nodes(entries, f"{file}: groups: {name}"):
                node.groups.append(name)
        for category, by_score in _mapping(content.get("terms"), f"{file}: terms").items():
            where = f"{file}: terms: {category}"
            _check_category(category, where)
            for score, entries in _mapping(by_score, where).items():
                for node in self._nodes(entries, f"{where}: {score}"):
                    node.terms.append((category, _score(score, where)))
        for node in self._nodes(content.get("exceptions") or [], f"{file}: exceptions"):
            node.harmless = True
        for number, entry in enumerate(_list(content.get("combinations"), f"{file}: combinations"), 1):
            self._combinations.append(_combination(entry, groups, f"{file}: combination {number}"))
        for number, entry in enumerate(_list(content.get("easings"), f"{file}: easings"), 1):
            self._easings.append(_easing(entry, groups, f"{file}: easing {number}"))

    def _nodes(self, entries: Any, where: str) -> Iterator[_Node]:
        """Where in the tree the phrases of `entries` end."""
        for entry in _list(entries, where):
            if not isinstance(entry, str):
                raise CheckpointError(f"{where}: {entry!r} is no text (write words like yes, no and 69 in quotes)")
            node = self._root
            symbols = [self._symbol(word, f"{where}: {entry!r}") for word in _words(entry)]
            if not symbols:
                raise CheckpointError(f"{where}: {entry!r} has no word")
            for symbol in symbols:
                node = node.following.setdefault(symbol, _Node())
            yield node

    def _symbol(self, word: str, where: str) -> str:
        """Itself, known from now on by all its forms."""
        if word.endswith("*"):
            stem = word.removesuffix("*")
            if len(stem) < 3:
                raise CheckpointError(f"{where}: a stem has three letters or more")
            forms: Iterable[str] = [stem]
            known = self._stems
        else:
            forms = _forms(word.removesuffix("~")) if word.endswith("~") else [word]
            if word.startswith(_MINOR):
                forms = [age + word.removeprefix(_MINOR) for age in _AGES]
            known = self._exact
        for form in forms:
            symbols = known.setdefault(form, [])
            if word not in symbols:
                symbols.append(word)
        return word


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


def _words(entry: str) -> list[str]:
    """Of an entry, as a Reader has them; a mark for its forms stays at the end of each."""
    words: list[str] = []
    for chunk in entry.split():
        if chunk.startswith(_MINOR):
            words.append(chunk)
            continue
        mark = chunk[-1] if chunk[-1] in "*~" else ""
        parts = fold(chunk.removesuffix(mark)).replace("-", " ").replace("'", " ").replace(".", " ").split()
        words += [*parts[:-1], parts[-1] + mark] if parts else []
    return words


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


def _content(file: Path) -> dict[str, Any]:
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{file} can't be read as a list of words: {error}") from error
    known = {"groups", "terms", "combinations", "exceptions", "easings"}
    if unknown := set(_mapping(content, str(file))) - known:
        raise CheckpointError(f"{file}: {', '.join(map(repr, unknown))} is none of {', '.join(sorted(known))}")
    return content or {}


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if value is not None and not isinstance(value, dict):
        raise CheckpointError(f"{where}: is no mapping")
    return value or {}


def _list(value: Any, where: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise CheckpointError(f"{where}: is no list")
    return value or []


def _check_category(category: Any, where: str) -> None:
    if category not in CATEGORIES:
        raise CheckpointError(f"{where}: {category!r} is none of {', '.join(CATEGORIES)}")


def _score(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise CheckpointError(f"{where}: {value!r} is no score above 0 and up to 1")
    return float(value)


def _combination(entry: Any, groups: set[str], where: str) -> Combination:
    fields = _fields(entry, {"category", "score", "near"}, {"within", "ordered"}, where)
    near = _list(fields["near"], f"{where}: near")
    if len(near) < 2:
        raise CheckpointError(f"{where}: near names two groups or more")
    for group in near:
        _check_group(group, groups, where)
    _check_category(fields["category"], where)
    within, ordered = fields.get("within", _NEAR), fields.get("ordered", False)
    if isinstance(within, bool) or not isinstance(within, int) or within < 0:
        raise CheckpointError(f"{where}: within: {within!r} is no number of words")
    if not isinstance(ordered, bool):
        raise CheckpointError(f"{where}: ordered: {ordered!r} is neither true nor false")
    return Combination(fields["category"], _score(fields["score"], where), tuple(near), within, ordered)


def _easing(entry: Any, groups: set[str], where: str) -> Easing:
    fields = _fields(entry, {"category", "by", "under", "times"}, set(), where)
    _check_category(fields["category"], where)
    _check_group(fields["by"], groups, where)
    return Easing(fields["category"], fields["by"], _score(fields["under"], where), _score(fields["times"], where))


def _fields(entry: Any, needed: set[str], possible: set[str], where: str) -> Mapping[Any, Any]:
    fields = _mapping(entry, where)
    if missing := needed - set(fields):
        raise CheckpointError(f"{where}: has no {', '.join(sorted(missing))}")
    if unknown := set(fields) - needed - possible:
        raise CheckpointError(f"{where}: {', '.join(map(repr, unknown))} is not known")
    return fields


def _check_group(group: Any, groups: set[str], where: str) -> None:
    if group not in groups:
        raise CheckpointError(f"{where}: there is no group {group!r}")
