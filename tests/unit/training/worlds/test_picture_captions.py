from __future__ import annotations

from random import Random

import pytest

from training.worlds.pictures import captions
from training.worlds.pictures.scene import Background, Scene, Thing


def told(scene: Scene, count: int = 300) -> set[str]:
    random = Random(0)
    return {captions.caption(scene, random) for _ in range(count)}


def test_there_are_many_ways_to_say_the_same() -> None:
    scene = Scene((Thing("star", "red", "small", "top left"),), Background("dark blue"))
    sentences = told(scene)
    assert len(sentences) > 100
    assert all("star" in sentence and "red" in sentence for sentence in sentences)
    assert all("top left" in sentence or "upper left" in sentence for sentence in map(str.lower, sentences))
    assert any("navy" in sentence for sentence in sentences)


def test_what_is_told_of_several_things_tells_them_apart() -> None:
    scene = Scene((Thing("star", "red", place="left"), Thing("ring", "black", place="right")), Background("white"))
    for sentence in told(scene):
        assert "star" in sentence
        assert any(word in sentence for word in ("ring", "hoop", "donut"))
        assert "left" in sentence or "next to" in sentence or "right" in sentence, sentence


@pytest.mark.parametrize(
    ("background", "words"),
    [
        (Background("red"), {"red background"}),
        (Background("red", "vertical", "white"), {"red to white gradient", "from red to white"}),
        (Background("red", "striped", "white"), {"red and white striped background"}),
        (Background("red", "dotted", "white"), {"red background with white dots"}),
    ],
)
def test_backgrounds_are_named_in_full(background: Background, words: set[str]) -> None:
    random = Random(0)
    for _ in range(20):
        sentence = captions.background(background, random)
        assert any(word in sentence for word in words), sentence


def test_articles_agree_with_what_follows() -> None:
    for sentence in told(Scene((Thing("arrow", "orange"),), Background("orange", "striped", "blue"))):
        assert " a orange" not in sentence
        assert not sentence.lower().startswith("a orange")


def test_a_thing_in_a_box_has_neither_size_nor_place() -> None:
    sentence = captions.caption(Scene((Thing("star", "red", box=(0, 0, 500, 500)),), Background("blue")), Random(3))
    assert not any(word in sentence for word in ("small", "large", "center", "middle"))
