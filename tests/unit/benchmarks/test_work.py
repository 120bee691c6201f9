from __future__ import annotations

import io
from dataclasses import replace

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


def drawn(side: int, shift: int = 0) -> bytes:
    ramp = np.indices((side, side)).sum(0) * 200 // (2 * side) + shift
    file = io.BytesIO()
    Image.fromarray(ramp.astype(np.uint8)).save(file, "png")
    return file.getvalue()


def enlarged(side: int) -> bytes:
    """A disc that was rendered at half the size: the same picture to the eye."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(disc(side // 2))) as small:
        small.resize((side, side), Image.Resampling.LANCZOS).save(file, "png")
    return file.getvalue()


def disc(side: int) -> bytes:
    file = io.BytesIO()
    y, x = np.indices((side, side)) - side / 2 + 0.5
    Image.fromarray(np.where(np.hypot(x, y) < side / 8, 255, 20).astype(np.uint8)).save(file, "png")
    return file.getvalue()


def test_pictures_of_one_seed_are_the_same() -> None:
    assert unlike([drawn(64), disc(64)], [drawn(64), disc(64)]) == []


def test_another_picture_size_or_number_is_unlike() -> None:
    assert unlike([drawn(64)], [drawn(64, shift=1)]) == ["picture 0: up to 1 levels of 255 apart"]
    assert unlike([drawn(64)], [drawn(32)]) == ["picture 0 is missing, or of another size"]
    assert unlike([drawn(64)], [b""]) == ["picture 0 is missing, or of another size"]
    assert unlike([drawn(64)], []) == ["1 and 0 pictures"]


def test_a_picture_that_was_enlarged_is_found_though_it_is_near_on_average() -> None:
    pixels, others = (np.asarray(Image.open(io.BytesIO(file)), float) for file in (disc(256), enlarged(256)))
    assert np.abs(pixels - others).mean() < 2
    assert unlike([disc(256)], [enlarged(256)]) != []
