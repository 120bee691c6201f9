# ruff: noqa: RUF001 (letters that look like others are what this is about)

from __future__ import annotations

import time
import unicodedata

import pytest

from deployments.moderation.normalised import Reader, fold

READER = Reader(["kill", "kills", "nude", "woman", "bomb", "pipe", "porn", "sex", "skill", "gore", "decapit"])
LONGEST = 32_768


def readings(text: str) -> set[str]:
    return {reading for word in READER.read(text) for reading in word}


@pytest.mark.parametrize(
    "text",
    [
        "kill",
        "KILL",
        "ｋｉｌｌ",
        "𝓴𝓲𝓵𝓵",
        "ⓚⓘⓛⓛ",
        "🅺🅸🅻🅻",
        "kíłl",
        "кіll",
        "κill",
        "ᴋɪʟʟ",
        "k\u200bi\u200dl\u00adl",
        "k\u0336i\u0336l\u0336l\u0336",
        "k\x00ill",
        "k1ll",
        "ki11",
        "k111",
        "k!ll",
        "k|ll",
        "k i l l",
        "K  I  L  L",
        "k.i.l.l",
        "k-i-l-l",
        "k_i_l_l",
        "k*i*l*l*",
        "k, i, l, l",
        "k🔥i🔥l🔥l",
        "k 1 l l",
        "ki.ll",
        "ki-ll",
        "kiiill",
        "kiiiiillll",
        "kkkilll",
        "k111l",
        "kill!!!",
        "“kill”",
        "kill's",
        "#kill",
    ],
)
def test_disguises_are_undone(text: str) -> None:
    assert "kill" in readings(text)


@pytest.mark.parametrize("text", ["n u d e w o m a n", "n.u.d.e w.o.m.a.n", "n u d 3   w 0 m 4 n"])
def test_words_of_letters_in_a_row_are_told_apart(text: str) -> None:
    assert ("nude",) in READER.read(text)
    assert ("woman",) in READER.read(text)


@pytest.mark.parametrize(
    "text", ["s k i l l s", "e s s e x", "s u s s e x", "p o r n i c", "categore", "a b c d e f g"]
)
def test_words_inside_others_are_left_there(text: str) -> None:
    assert not readings(text) & {"kill", "kills", "nude", "porn", "sex", "gore"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 red balls", ["3", "red", "balls"]),
        ("size 5 shoes", ["size", "5", "shoes"]),
        ("7x7 grid", ["7x7", "grid"]),
        ("route 66", ["route", "66"]),
        ("1911 postcard", ["1911", "postcard"]),
        ("It's a cat; a dog!", ["it", "a", "cat", "a", "dog"]),
        ("the a-team", ["the", "a", "team"]),
    ],
)
def test_plain_text_stays(text: str, words: list[str]) -> None:
    assert [word[0] for word in READER.read(text)] == words


def test_letters_in_a_row_are_one_word() -> None:
    assert READER.read("a-b-c") == [("abc",)]
    assert READER.read("a b") == [("a",), ("b",)]
    assert READER.read("1 2 3 4") == [("1",), ("2",), ("3",), ("4",)]


def test_stretched_letters_become_those_of_a_known_word() -> None:
    assert "gore" in readings("gooooreee")
    assert "cute" in readings("cuuute")
    assert READER.read("book") == [("book",)]


def test_scripts_without_spaces_are_read_by_the_character() -> None:
    assert READER.read("裸体") == READER.read("裸 体") == READER.read("裸。体") == [("裸",), ("体",)]


def test_other_scripts_survive() -> None:
    assert fold("Привет") == fold("привет")
    assert fold("Straße") == "strasse"
    assert fold("naïve") == "naive"
    assert fold("סֵפֶר").strip() == "ספר"


@pytest.mark.parametrize("text", ["", " ", "!!!", "\u200b", "...---...", "\ud800", "\x00", "@", "$ $ $", "''", "'s"])
def test_nothing_to_read(text: str) -> None:
    assert all(reading for word in READER.read(text) for reading in word)


def test_a_character_that_stands_for_a_phrase_does_not_lengthen_a_text() -> None:
    assert len(unicodedata.normalize("NFKD", "\ufdfa")) > 10
    assert fold("\ufdfa") == " "


HOSTILE = {
    "letters": "a ",
    "dotted": "a.",
    "dashes": "a-b-",
    "digits in words": "k1ll3r ",
    "ones": "a1",
    "one word": "a",
    "stretched": "kiiill ",
    "known words in a row": "n u d e ",
    "scripts without spaces": "裸",
    "marks": "a\u0301\u0316",
    "signs": "$",
    "apostrophes": "'s",
    "split words": "ki-ll ",
    "long expansions": "\ufdfa",
}


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_time_grows_with_the_length_alone(unit: str) -> None:
    """Eight times the text would take 64 times as long if the work were quadratic."""

    def taken(length: int) -> float:
        text = (unit * length)[:length]
        times = []
        for _ in range(3):
            start = time.thread_time()
            READER.read(text)
            times.append(time.thread_time() - start)
        return min(times)

    taken(LONGEST // 8)
    assert taken(LONGEST) < 30 * max(taken(LONGEST // 8), 1e-3)
