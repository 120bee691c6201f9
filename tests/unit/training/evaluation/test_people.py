from __future__ import annotations

import hashlib
from pathlib import Path
from random import Random

import pytest

from training.evaluation import people
from training.evaluation.people import PEOPLE, read
from training.evaluation.pictures import ROWS, ideal

LOCKED = "f3a3da43bc4509216129ada6816b51d72f16f6a091f45d3c822622e537317228"


def test_there_are_nearly_five_hundred_and_some_are_locked() -> None:
    counts = {name: sum(map(len, prompts.values())) for name, prompts in PEOPLE.items()}
    assert counts == {"people": 390, "people_locked": 100}


def test_the_locked_ones_are_as_they_were_written() -> None:
    content = Path(people.__file__).with_name("people_locked.txt").read_bytes()
    assert hashlib.sha256(content).hexdigest() == LOCKED


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.name.startswith(("people", "locked"))])
def test_right_pictures_are_right_and_those_of_other_prompts_are_not(name: str) -> None:
    [row] = (row for row in ROWS if row.name == name)
    questions = [row.ask(Random(0), index) for index in range(0, row.count(100), 4)]
    pictures = [ideal(question) for question in questions]
    grades = [row.grade(question, picture) for question, picture in zip(questions, pictures, strict=True)]
    assert [grade.faults for grade in grades] == [()] * len(grades)
    others = [row.grade(question, picture).right for question, picture in zip(questions, pictures[1:], strict=False)]
    assert sum(others) < len(others) / 3


def test_a_line_is_a_prompt_pictures_and_what_must_be_seen(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("# edits\nmake it blue | red star @ left / white | blue star @ left / white\n")
    [asked] = read(file)["edits"]
    assert asked.prompt == "make it blue"
    assert [thing.colour for scene in asked.given for thing in scene.things] == ["red"]
    assert [thing.colour for thing in asked.wanted.things] == ["blue"]
    assert asked.grid == (8, 8)
