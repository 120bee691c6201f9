from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from training.build.words import WORDS
from training.lessons.pictures import LESSONS
from training.lessons.sayings import people_scene
from training.worlds.pictures.scene import Grid

GRIDS: list[Grid] = [(8, 8), (8, 14), (14, 8)]
KINDS = ("say", "ask", "join")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held_out", [False, True])
def test_lessons_can_be_drawn_and_what_is_kept_for_grading_stays_apart(kind: str, held_out: bool) -> None:
    random = Random(1)
    for index in range(60):
        grid = GRIDS[index % 3]
        lesson = LESSONS[kind](random, grid, held_out)
        assert lesson.target.held_out == held_out
        assert lesson.target.fits(grid, 0.1)
        assert len(lesson.references) == KINDS.index(kind)


@pytest.mark.parametrize("kind", ["tell", "change", "combine", *KINDS])
def test_all_that_is_practised_is_known(kind: str) -> None:
    random = Random(2)
    unknown = Counter(word for _ in range(150) for word in WORDS.unknown(LESSONS[kind](random, (8, 8), False).prompt))
    assert set(unknown) <= {"minimalist", "design", "edges", "clean", "simple"}, unknown


@pytest.mark.parametrize("kind", ["ask", "join"])
def test_what_is_practised_is_what_people_are_understood_to_say(kind: str) -> None:
    random = Random(6)
    for _ in range(300):
        lesson = LESSONS[kind](random, (8, 8), False)
        # Of two sizes or colours of one thing, the last one counts; backgrounds are told in one way, at the end.
        asked, read = (set(told.split(" and ")) for told in (WORDS.normalised(lesson.prompt), lesson.read))
        assert {told for told in read if "background" not in told} <= asked, lesson.prompt


def test_there_are_two_to_five_things_and_equal_ones() -> None:
    random = Random(3)
    scenes = [people_scene(random, (8, 8)) for _ in range(300)]
    assert {len(scene.things) for scene in scenes} == {2, 3, 4, 5}
    equal = [scene for scene in scenes if len({(t.shape, t.colour) for t in scene.things}) < len(scene.things)]
    assert 0.2 < len(equal) / len(scenes) < 0.6
