"""What a small checkpoint knows of people's words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bundle import WORDS as VOCABULARY

from deployments.contract import words
from deployments.contract.words import Words

WORDS = Words(
    known=(
        *("a", "an", "the", "on", "at", "and", "to", "in", "top", "left", "center", "make", "put", "background"),
        *("red", "white", "orange", "light", "blue", "gray", "small", "circle", "star", "arrow", "heart", "two"),
        "image",
    ),
    said_for={
        "crimson": "red",
        "navy blue": "blue",
        "sky blue": "light blue",
        "light red": "orange",
        "maroon": "red",
        "lime": "gray",
        "grey": "gray",
        "disc": "circle",
        "coeur": "heart",
        "rot": "red",
        "grun": "gray",
        "stern": "star",
        "strasse": "background",
        "2": "two",
        "image 2": "image 2",
        "image two": "image 2",
        "1": "a",
        "ein": "a",
        "auf": "on",
    },
    openings=("please", "draw", "draw me", "i'd like", "i would like", "ein bild von", "hello", "an image of"),
    fillers=("nice", "in color", "s'il vous plait"),
    colours=("red", "white", "orange", "light blue", "blue", "gray"),
    shapes=("circle", "star", "arrow", "heart"),
    sizes=("small",),
    nouns=("background",),
    adjectives=("light",),
    edits=("make", "put"),
)
HOSTILE = 100_000
"""Characters; more than any prompt may have."""


@pytest.mark.parametrize(
    ("prompt", "normalised"),
    [
        # Case, punctuation, white space.
        ("A Red STAR", "a red star"),
        ("a red star.", "a red star"),
        ("a red star!?", "a red star"),
        ("  a\tred   star ", "a red star"),
        ("a red star; a circle", "a red star, a circle"),
        ("a red star\na circle", "a red star, a circle"),
        ("a red-star (on_white)", "a red star on white"),
        ("a red star & a circle", "a red star and a circle"),
        (", a red star,", "a red star"),
        # Accents, typographic letters, what can't be seen.
        ("a réd stär", "a red star"),
        ("grün circle", "a gray circle"),
        ("Straße", "a background"),
        ("a cœur", "a heart"),
        ("a \uff32ed star", "a red star"),
        ("a \N{MATHEMATICAL BOLD CAPITAL R}ed star", "a red star"),
        ("a r\u00aded s\u200btar", "a red star"),
        # Numerals.
        ("1 star", "a star"),
        ("2 stars", "two star"),
        # Synonyms, the longest first; other languages.
        ("a crimson disc", "a red circle"),
        ("a navy blue star", "a blue star"),
        ("a sky blue star", "a light blue star"),
        ("a light maroon star", "an orange star"),
        ("a light wooden red star", "an orange star"),
        ("imagge 2", "image 2"),
        ("ein rot stern auf strasse", "a red star on a background"),
        # Plurals.
        ("stars", "a star"),
        ("discs", "a circle"),
        ("crosses", ""),
        ("hearts arrowes", "a heart an arrow"),
        # One letter wrong, missing, too many, or swapped with its neighbour; not in short words, and never the first.
        ("a cirkle", "a circle"),
        ("a circl", "a circle"),
        ("a circcle", "a circle"),
        ("a cicrle", "a circle"),
        ("a crmson star", "a red star"),
        ("a circels", "a circle"),
        ("a sta", "a"),
        ("a tircle", "a"),
        # What says nothing.
        ("please draw me a red star", "a red star"),
        ("I'd like a red star", "a red star"),
        ("I\N{RIGHT SINGLE QUOTATION MARK}d like a red star", "a red star"),
        ("i would like a red star", "a red star"),
        ("hello, please, draw me a red star", "a red star"),
        ("Ein Bild von ein stern", "a star"),
        ("a nice red star in color, s'il vous plaît", "a red star"),
        ("a cat and a red star", "a and a red star"),
        # Articles.
        ("red star", "a red star"),
        ("orange star", "an orange star"),
        ("a orange star, an red circle, 1 arrow", "an orange star, a red circle, an arrow"),
        ("small red star on white background", "a small red star on a white background"),
        ("red and white background", "a red and white background"),
        ("the red star, circle", "the red star, a circle"),
        ("make star red", "make star red"),
        ("put star on circle", "put star on circle"),
        # Pictures that were sent.
        ("the star in <ref_image_1>", "the star in image 2"),
        # Nothing to go by.
        ("", ""),
        ("??", ""),
        ("cat", ""),
        ("кошка", ""),
    ],
)
def test_a_prompt_is_put_in_known_words(prompt: str, normalised: str) -> None:
    assert WORDS.normalised(prompt) == normalised


@pytest.mark.parametrize(
    ("prompt", "unknown"),
    [
        ("a red star on a crimson background", ()),
        ("I'd like 2 nice stars, s'il vous plaît", ()),
        ("a cat on a sofa", ("cat", "sofa")),
        ("A Cat and a cat, CATS", ("cat", "cats")),
        ("a rde heart", ("rde",)),
        ("as ons", ("as", "ons")),
        ("a sta, a tircle", ("sta", "tircle")),
        ("un café", ("un", "cafe")),
        ("кошка on a 沙发", ("кошка", "沙发")),
        ("a łódź", ("łodz",)),
        ("don't", ("dont",)),
        ("a 8k star, x, 3", ()),
        ("put <ref_image_0> on ref_image_1", ()),
        ("", ()),
    ],
)
def test_what_means_nothing_is_told_in_order_and_once(prompt: str, unknown: tuple[str, ...]) -> None:
    assert WORDS.unknown(prompt) == unknown


def test_a_word_between_two_meanings_is_left_unknown() -> None:
    both = replace(WORDS, known=("curve", "carve"))
    assert both.unknown("cirve") == ("cirve",)
    assert replace(both, known=("curve",)).unknown("cirve") == ()


@pytest.mark.parametrize("table", ['[{"id": "Cat_1", "bbox": [1, 2, 3, 4], "desc": "A  Cat, sat."}]', "[ {not json"])
def test_a_region_table_stays_as_it_is(table: str) -> None:
    assert WORDS.normalised(f"Red STARS {table}") == f"a red star {table}"
    assert WORDS.normalised(table) == table
    assert WORDS.unknown(f"a dog {table}") == ("dog",)


def test_without_a_file_prompts_are_read_as_they_are(tmp_path: Path) -> None:
    assert Words.of(tmp_path) is None
    assert Words.of(tmp_path / "nothing") is None


def test_words_are_read_as_they_were_written(tmp_path: Path) -> None:
    WORDS.write(tmp_path)
    assert Words.of(tmp_path) == WORDS


WRONG = json.dumps(asdict(WORDS) | {"fillers": ["ok", True]})
"""As YAML has it of an unquoted `yes`."""


@pytest.mark.parametrize("text", ["", "[]", "3", '{"known": ["a"]}', '{"surprise": []}', '{"known": 3}', WRONG])
def test_a_file_that_is_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / words.FILE).write_text(text)
    with pytest.raises(ValueError, match=r"words\.json"):
        Words.of(tmp_path)


@pytest.mark.parametrize("known", [VOCABULARY], ids=["shipped"])
def test_whatever_is_said_for_something_is_said_in_known_words(known: Words) -> None:
    for phrase, meaning in known.said_for.items():
        assert known.unknown(phrase) == (), phrase
        assert known.unknown(meaning) == (), phrase


@pytest.mark.parametrize("known", [VOCABULARY], ids=["shipped"])
def test_openings_and_fillers_say_nothing(known: Words) -> None:
    for phrase in (*known.openings, *known.fillers):
        assert known.normalised(f"{phrase} a red star") == "a red star", phrase
        assert known.unknown(f"{phrase} a red star") == (), phrase


def _of(known: Words) -> st.SearchStrategy[str]:
    """Prompts out of all that it has heard of, some of it misspelt, and of what it has not."""
    phrases = (*known.known, *known.said_for, *known.openings, *known.fillers)
    said = st.sampled_from(phrases)
    misspelt = st.builds(lambda word, at: word[: at % len(word)] + word[at % len(word) + 1 :], said, st.integers(0, 9))
    other = st.sampled_from(["cat", "on top of", ",", ".", "7", "8k", "<ref_image_1>", "Ünknown", "кошка"])
    return st.lists(st.one_of(said, said, said, misspelt, other), max_size=12).map(" ".join)


@given(_of(VOCABULARY))
def test_what_is_put_in_known_words_stays_so(prompt: str) -> None:
    normalised = VOCABULARY.normalised(prompt)
    assert VOCABULARY.normalised(normalised) == normalised
    assert VOCABULARY.unknown(normalised) == ()


@given(st.text(max_size=300))
def test_any_text_is_put_in_known_words(text: str) -> None:
    told, _, table = text.partition("[")
    assert set(WORDS.normalised(told)) <= set("abcdefghijklmnopqrstuvwxyz0123456789, ")
    assert all(word.isalpha() and word == word.casefold() for word in WORDS.unknown(told + table))


def _distinct(n: int) -> str:
    letters = [chr(ord("a") + i) for i in range(26)]
    return letters[n // 17576 % 26] + letters[n // 676 % 26] + letters[n // 26 % 26] + letters[n % 26] + "e"


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda n: "s" * n,
        lambda n: "es" * (n // 2),
        lambda n: "star" + "s" * n,
        lambda n: "x" * n,
        lambda n: "9" * n,
        lambda n: "please " * (n // 7),
        lambda n: "red and " * (n // 8) + "circle",
        lambda n: "circle " * (n // 7),
        lambda n: " ".join(map(_distinct, range(n // 6))),
        lambda n: "[ " * (n // 2),
        lambda n: "[" + " " * n,
        lambda n: "." * n,
        lambda n: "," * n,
        lambda n: "a\u0301" * (n // 2),
        lambda n: "\ufdfa" * n,
        lambda n: "猫" * n,
        lambda n: "\u202e\u2066x " * (n // 4),
        lambda n: "<ref_image_" + "9" * n,
        lambda n: "\ud800 " * (n // 2),
    ],
)
def test_hostile_text_takes_no_time(make: Callable[[int], str]) -> None:
    """Twice as much takes twice as long, and not four times: what is quadratic takes minutes here."""
    prompt, began = make(HOSTILE), time.process_time()
    VOCABULARY.normalised(prompt)
    VOCABULARY.unknown(prompt)
    assert time.process_time() - began < 5
