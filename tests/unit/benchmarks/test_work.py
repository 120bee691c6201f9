from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.work import Work, differences, unlike

WORK = Work((256, 256), 8, "float32", 2)


def test_the_same_work_differs_in_nothing() -> None:
    assert differences("a", [WORK, WORK], "b", [WORK, WORK]) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(WORK, rendered=(128, 128)), "rendered: a (256, 256), b (128, 128)"),
        (replace(WORK, steps=4), "steps: a 8, b 4"),
        (replace(WORK, dtype="bfloat16"), "dtype: a float32, b bfloat16"),
        (replace(WORK, threads=1), "threads: a 2, b 1"),
    ],
)
def test_a_difference_is_said_once(other: Work, said: str) -> None:
    assert differences("a", [WORK, WORK], "b", [other, other]) == [said]


def test_less_work_is_a_difference() -> None:
    assert differences("a", [WORK], "b", []) == ["a did 1 pictures, b 0"]


def drawn(path: Path, side: int, shift: int = 0) -> Path:
    ramp = np.indices((side, side)).sum(0) * 255 // (2 * side) + shift
    Image.fromarray(np.clip(ramp, 0, 255).astype(np.uint8)).save(path)
    return path


def test_pictures_of_one_seed_are_alike(tmp_path: Path) -> None:
    one, other = drawn(tmp_path / "a.png", 64), drawn(tmp_path / "b.png", 64, shift=1)
    assert unlike([one], [other]) == []


def test_another_picture_size_or_number_is_unlike(tmp_path: Path) -> None:
    one = drawn(tmp_path / "a.png", 64)
    assert unlike([one], [drawn(tmp_path / "b.png", 64, shift=9)])[0].endswith("levels of 255 apart")
    assert unlike([one], [drawn(tmp_path / "c.png", 32)]) == ["picture 0: 64 x 64 and 32 x 32 pixels"]
    assert unlike([one], []) == ["1 and 0 pictures"]
