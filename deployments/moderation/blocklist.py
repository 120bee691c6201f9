"""The blocklist classifier of prompts: words and phrases with categories and scores.

`lexicon.yaml` explains its format; an operator's file of the same format adds to it. Phrases match whole words, both in
the original text and in one with simple disguises undone (`p0rn`, `p.o.r.n`). It knows words, not meaning: it is no
safety system, and much harmful content passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from unicodedata import normalize

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from deployments.checkpoint_files import CheckpointError
from deployments.contract.moderation import CATEGORIES, ClassifierSpec, Scores
from deployments.contract.yaml_files import read_yaml

_OWN: Final = Path(__file__).with_name("lexicon.yaml")
_MINOR: Final = (
    "(?:0?[1-9]|1[0-7]|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven)teen)"
)
_NO_SPACES: Final = re.compile("[\u0e00-\u0eff\u3040-\u9fff\uac00-\ud7a3]")
"""Scripts without spaces between words or before endings: their phrases also match inside words."""
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_NO_WORD: Final = re.compile(r"[\W_]+")
_DISGUISES: Final = str.maketrans("01345789@$|аеіорсух", "oieastbgasiaeiopcyx")  # noqa: RUF001 (Cyrillic letters)
_SPELT: Final = re.compile(r"\b\w(?: \w\b){2,}")


def _check_category(category: str) -> str:
    if category not in CATEGORIES:
        raise ValueError(f"must be one of {', '.join(CATEGORIES)}")
    return category


Category: TypeAlias = Annotated[str, AfterValidator(_check_category)]
Score: TypeAlias = Annotated[float, Field(gt=0, le=1)]
Phrase: TypeAlias = Annotated[str, StringConstraints(pattern=r"^(<minor>\w*|\w+[~*]?)( (<minor>\w*|\w+[~*]?))*$")]


class Pair(BaseModel, extra="forbid"):
    """Score of two phrases, one of each list, with up to `within` words between them; `ordered`: in this order only."""

    category: Category
    score: Score
    first: list[Phrase]
    second: list[Phrase]
    within: Annotated[int, Field(ge=0, le=20)] = 4
    ordered: bool = False


class WordList(BaseModel, extra="forbid"):
    terms: dict[Category, dict[Score, list[Phrase]]] = {}
    pairs: list[Pair] = []
    harmless: list[Phrase] = []
    """Phrases whose words are ignored."""


class Lexicon:
    def __init__(self, spec: ClassifierSpec) -> None:
        """`spec.checkpoint` may name a file that adds to the project's. Raises CheckpointError."""
        lists = [read(file) for file in (_OWN, *([Path(spec.checkpoint)] if spec.checkpoint else []))]
        self._rules = [rule for each in lists for rule in _rules(each)]
        self._harmless = re.compile(_union([phrase for each in lists for phrase in each.harmless]))

    def classify(self, texts: Sequence[str]) -> list[Scores]:
        return [self._score(text) for text in texts]

    def _score(self, text: str) -> Scores:
        readings = [self._harmless.sub(" ", reading) for reading in _readings(text)]
        scores: dict[str, float] = {}
        for pattern, category, score in self._rules:
            if score > scores.get(category, 0) and any(map(pattern.search, readings)):
                scores[category] = score
        return scores


def read(file: Path) -> WordList:
    """Raises CheckpointError."""
    try:
        return WordList.model_validate(read_yaml(file) or {})
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} can't be read as a list of words: {error}") from error


def _readings(text: str) -> tuple[str, str]:
    """Returns the words of a text with single spaces: as written, and without disguises."""
    folded = _INVISIBLE.sub("", normalize("NFKC", text)).casefold()
    undone = _SPELT.sub(_join_letters, _NO_WORD.sub(" ", folded.translate(_DISGUISES)))
    return _NO_WORD.sub(" ", folded), undone


def _join_letters(spelt: re.Match[str]) -> str:
    """Returns `k i l l` as a word, and again without its first letter, which may be a word (`a n u d e`)."""
    word = spelt[0].replace(" ", "")
    return f"{word} {word[1:]}"


def _rules(words: WordList) -> Iterator[tuple[re.Pattern[str], str, float]]:
    for category, by_score in words.terms.items():
        for score, phrases in by_score.items():
            yield re.compile(_union(phrases)), category, score
    for pair in words.pairs:
        first, second, between = _union(pair.first), _union(pair.second), rf"(?: \w++){{0,{pair.within}}} ?"
        either = "" if pair.ordered else f"|{second}{between}{first}"
        yield re.compile(f"{first}{between}{second}{either}"), pair.category, pair.score


def _union(phrases: Sequence[str]) -> str:
    """Returns a pattern for any of the phrases; one that never matches without any."""
    inside = [phrase for phrase in phrases if _NO_SPACES.search(phrase)]
    words = [_pattern(phrase) for phrase in phrases if phrase not in inside]
    whole = [rf"\b(?:{'|'.join(words)})\b"] if words else []
    return f"(?:{'|'.join([*whole, *map(_pattern, inside)]) or '(?!)'})"


def _pattern(phrase: str) -> str:
    return " ".join(map(_form, normalize("NFKC", phrase).casefold().split()))


def _form(word: str) -> str:
    """Returns a pattern for a word: `kill~` in its regular English forms, `porn*` with any ending, `<minor>` ages."""
    stem = re.escape(word.rstrip("~*")).replace("<minor>", _MINOR)
    if word.endswith("*"):
        return stem + r"\w*"
    if word.endswith("e~"):
        return f"{stem[:-1]}(?:e[sd]?|ers?|ing)"
    return f"{stem}(?:e?s|{stem[-1]}?(?:ed|ers?|ing))?" if word.endswith("~") else stem
