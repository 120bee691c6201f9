"""A list of words as a file has it, checked: `lexicon.yaml`, and what operators add to it.

Phrases are folded as `normalised.py` does. A word may end with a mark: `*` stands for any ending, `~` for the regular
forms of an English noun or verb. `<minor>` stands for an age below 18, and with letters after it for the age and those
letters: `<minor>yo`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from unicodedata import normalize

import yaml

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES
from deployments.moderation.normalised import fold

MINOR: Final = "<minor>"
_NEAR: Final = 5
"""Words between the words of a combination at most, where it doesn't say."""
_SHORTEST_STEM: Final = 3

Phrase: TypeAlias = tuple[str, ...]
"""Its words, each with its mark."""


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


@dataclass(frozen=True, slots=True)
class WordList:
    groups: Mapping[str, Sequence[Phrase]]
    terms: Sequence[tuple[Phrase, str, float]]
    """With the category and the score of each."""
    exceptions: Sequence[Phrase]
    combinations: Sequence[Combination]
    easings: Sequence[Easing]
    misspelt: Sequence[str] = ()
    """Words that are known with a wrong letter, too."""
    accented: Sequence[str] = ()
    """Words that are others without their accents, and harmless with them."""


def read(file: Path, known: set[str]) -> WordList:
    """The list in `file`, which may use groups that are `known` already. Raises CheckpointError naming the entry."""
    content = _content(file)
    groups = {
        name: list(_phrases(entries, f"{file}: groups: {name}"))
        for name, entries in _mapping(content.get("groups"), f"{file}: groups").items()
    }
    known = known | set(groups)
    return WordList(
        groups,
        list(_terms(content.get("terms"), f"{file}: terms")),
        list(_phrases(content.get("exceptions"), f"{file}: exceptions")),
        [
            _combination(entry, known, f"{file}: combination {number}")
            for number, entry in enumerate(_list(content.get("combinations"), f"{file}: combinations"), 1)
        ],
        [
            _easing(entry, known, f"{file}: easing {number}")
            for number, entry in enumerate(_list(content.get("easings"), f"{file}: easings"), 1)
        ],
        [word for phrase in _phrases(content.get("misspelt"), f"{file}: misspelt") for word in phrase],
        list(_texts(content.get("accented"), f"{file}: accented")),
    )


def _terms(by_category: Any, where: str) -> Iterator[tuple[Phrase, str, float]]:
    for category, by_score in _mapping(by_category, where).items():
        _check_category(category, f"{where}: {category}")
        for score, entries in _mapping(by_score, f"{where}: {category}").items():
            for phrase in _phrases(entries, f"{where}: {category}: {score}"):
                yield phrase, category, _score(score, f"{where}: {category}")


def _phrases(entries: Any, where: str) -> Iterator[Phrase]:
    for entry in _texts(entries, where):
        words = _words(entry)
        if not words:
            raise CheckpointError(f"{where}: {entry!r} has no word")
        # Of a Hangul syllable each letter counts.
        if any(word.endswith("*") and len(normalize("NFD", word)) <= _SHORTEST_STEM for word in words):
            raise CheckpointError(f"{where}: {entry!r}: a stem has three letters or more")
        yield tuple(words)


def _texts(entries: Any, where: str) -> Iterator[str]:
    for entry in _list(entries, where):
        if not isinstance(entry, str):
            raise CheckpointError(f"{where}: {entry!r} is no text (write words like yes, no and 69 in quotes)")
        yield entry


def _words(entry: str) -> list[str]:
    """Of an entry, as a Reader has them; a mark for its forms stays at the end of each."""
    words: list[str] = []
    for chunk in entry.split():
        if chunk.startswith(MINOR):
            words.append(chunk)
            continue
        mark = chunk[-1] if chunk[-1] in "*~" else ""
        parts = fold(chunk.removesuffix(mark)).replace("-", " ").replace("'", " ").replace(".", " ").split()
        words += [*parts[:-1], parts[-1] + mark] if parts else []
    return words


def _content(file: Path) -> dict[str, Any]:
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{file} can't be read as a list of words: {error}") from error
    known = {"groups", "terms", "combinations", "exceptions", "easings", "misspelt", "accented"}
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
