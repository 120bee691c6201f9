from __future__ import annotations

from training.lessons.batches import UNKNOWN
from training.lessons.lesson import Lesson
from training.lessons.prompts import GONE, NEW, Asked, answered
from training.worlds import palette, shapes
from training.worlds.pictures.scene import Background, Scene, Thing
from training.worlds.vocabulary import PLACES, SIZES

STAR = Thing("star", "red", size="large", place="left")
RING = Thing("ring", "blue", size="small", place="right")
BLACK = Background("black")
BOTH = Scene((STAR, RING), BLACK)


def asked(lesson: Lesson) -> Asked:
    return answered([lesson])


def of(thing: Thing) -> list[int]:
    return [
        1 + shapes.NAMES.index(thing.shape),
        1 + palette.NAMES.index(thing.colour),
        1 + tuple(SIZES).index(thing.size),
        1 + tuple(PLACES).index(thing.place),
    ]


def test_of_a_told_picture_every_place_and_the_background_are_asked() -> None:
    questions = asked(Lesson("a red star and a blue ring", BOTH))
    places = questions.things[:-1, 0, :NEW]
    for thing in (STAR, RING):
        assert places[:, tuple(PLACES).index(thing.place)].tolist() == of(thing)[:-1]
    assert (places.sum(0) > 0).sum() == 2, "nothing is anywhere else"
    assert (questions.things[-1, 0, :NEW] == UNKNOWN).all(), "the question says the place"
    assert (questions.things[:, 0, NEW:] == UNKNOWN).all(), "nothing changes"
    assert questions.background[:, 0].tolist() == [palette.NAMES.index("black"), 0, 0]


def test_of_an_edit_it_is_asked_what_comes_and_what_goes() -> None:
    green = Thing("star", "green", size="large", place="left")
    questions = asked(Lesson("make the star green", Scene((green, RING), BLACK), (BOTH,)))
    assert questions.things[:, 0, NEW].tolist() == of(green)
    assert questions.things[:, 0, GONE].tolist() == of(STAR)
    assert (questions.things[:, 0, :NEW] == UNKNOWN).all()
    assert (questions.background == UNKNOWN).all()


def test_of_a_removal_it_is_known_that_nothing_comes() -> None:
    questions = asked(Lesson("remove the star", Scene((RING,), BLACK), (BOTH,)))
    assert questions.things[:, 0, NEW].tolist() == [0, 0, 0, 0]
    assert questions.things[:, 0, GONE].tolist() == of(STAR)


def test_a_new_background_is_asked_for() -> None:
    striped = Background("white", "striped", "red")
    questions = asked(Lesson("a white and red striped background", Scene(BOTH.things, striped), (BOTH,)))
    assert questions.background[0, 0] == palette.NAMES.index("white")
    assert questions.background[1, 0] == 1 + palette.NAMES.index("red")
